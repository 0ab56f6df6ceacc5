// The target of a third party's driver, for `conformance(target)`: where the broker is comes from the environment,
// so that child processes find it, too.
import { connect } from '@longshore/core'
import { relay } from './driver.mjs'

const { RELAY_HOST = '127.0.0.1', RELAY_PORT = '' } = process.env

/**
 * @param {string} host
 * @param {number} port
 * @param {import('@longshore/core').BusOptions} [options]
 * @param {import('./driver.mjs').Wrongs} [wrongs]
 */
export const connectTo = (host, port, options, wrongs = {}) =>
  connect({ driver: relay, url: `relay://${host}:${port}`, options: wrongs, ...options })

export default {
  driver: 'relay',
  /** @param {import('@longshore/core').BusOptions} [options] */
  connect: (options) => connectTo(RELAY_HOST, Number(RELAY_PORT), options),
}
