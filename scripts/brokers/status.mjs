import { nextUnavailable } from './debian-next.mjs'
import { asError } from './errors.mjs'
import { BROKERS, checkNames, environmentUrl, isNext, kindOf } from './names.mjs'
import { which } from './run.mjs'
import { definitionOf, managerOf, sourceOf } from './source.mjs'
import { readState } from './state.mjs'

/**
 * How brokers are. Starts nothing.
 * @param {readonly string[]} [names] all when empty
 * @returns {Promise<import('./types.mjs').BrokerStatus[]>}
 */
export function status(names = []) {
  return Promise.all(checkNames(names.length > 0 ? names : BROKERS).map(statusOf))
}

/**
 * @param {string} name
 * @returns {Promise<import('./types.mjs').BrokerStatus>}
 */
async function statusOf(name) {
  try {
    const source = await sourceOf(name)
    if (source === 'env') return { name, source, ...(await ask(name, environmentUrl(name) ?? '')) }
    const manager = await managerOf(name)
    const { running, paused } = await manager.inspect(definitionOf(name), name)
    const state = readState(name)
    if (!running || !state) {
      const reason = source === 'native' ? cannotStart(name) : undefined
      return { name, source, state: reason ? 'unavailable' : 'down', reason }
    }
    const url = definitionOf(name).url(state.ports.main ?? 0)
    const age = state.startedAt && Math.round((Date.now() - state.startedAt) / 1000)
    const common = { name, source, pid: state.process?.pid, url, uptime: age }
    if (paused) return { ...common, state: 'paused' }
    const answer = await ask(name, url)
    return { ...common, ...answer, version: answer.version ?? state.installed }
  } catch (error) {
    return { name, state: 'unavailable', reason: asError(error).message }
  }
}

/**
 * @param {string} name
 * @param {string} url
 * @returns {Promise<{ state: 'up' | 'unhealthy', url: string, version?: string | undefined, reason?: string }>}
 */
async function ask(name, url) {
  try {
    return { state: 'up', url, version: (await definitionOf(name).probe(url)).version }
  } catch (error) {
    return { state: 'unhealthy', url, reason: asError(error).message }
  }
}

/**
 * Why a broker that is down can't be started here, as far as that is known without trying.
 * @param {string} name
 */
function cannotStart(name) {
  if (!isNext(name) || kindOf(name) === 'kafka') return undefined
  if (kindOf(name) !== 'nats') return nextUnavailable()
  return which('go') ? undefined : 'building it needs Go 1.26; install it'
}
