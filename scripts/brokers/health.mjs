import { setTimeout as sleep } from 'node:timers/promises'
import { asError, BrokerError, throwIfAborted } from './errors.mjs'

/**
 * Waits until the server answers clients, and returns its version.
 * @param {import('./types.mjs').Definition} definition
 * @param {string} url
 * @param {object} options
 * @param {number} options.timeout milliseconds
 * @param {AbortSignal | undefined} options.signal
 * @param {() => Promise<boolean>} options.running whether it still runs
 */
export async function waitHealthy(definition, url, { timeout, signal, running }) {
  const deadline = Date.now() + timeout
  for (let pause = 25; ; pause = Math.min(pause * 1.3, 250)) {
    throwIfAborted(signal)
    try {
      return (await definition.probe(url)).version
    } catch (error) {
      const reason = asError(error).message || 'it does not listen yet'
      if (!(await running())) {
        throw new BrokerError('BROKER_NOT_HEALTHY', 'it ended right after its start')
      }
      if (Date.now() > deadline) {
        const seconds = Math.round(timeout / 1000)
        throw new BrokerError('BROKER_NOT_HEALTHY', `not ready after ${seconds} s: ${reason}`)
      }
    }
    await sleep(pause)
  }
}
