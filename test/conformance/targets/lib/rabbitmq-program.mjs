// The target for child processes, in its URL's query: where the broker is.
import { connect } from '@longshore/core'
import { driver } from '@longshore/rabbitmq'

const url = new URL(import.meta.url).searchParams.get('broker') ?? ''

/** @type {import('@longshore/conformance').ConformanceTarget} */
export default {
  driver: 'rabbitmq',
  connect: (options) => connect({ driver, url, ...options }),
}
