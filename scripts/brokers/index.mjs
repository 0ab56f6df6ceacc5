/**
 * Brings up the brokers that tests, benchmarks and examples need. Also a command: see
 * `scripts/brokers.mjs`.
 */

import { hasApt, installPackages, missingPackages } from './apt.mjs'
import { asError, BrokerError, BrokersError } from './errors.mjs'
import { waitHealthy } from './health.mjs'
import { BASE, BROKERS, checkNames, environmentUrl, environmentVariable, isNext } from './names.mjs'
import { listApart, logFile, setApart } from './paths.mjs'
import { isRoot, lastLines, tryRun } from './run.mjs'
import { definitionOf, managerOf, sourceOf } from './source.mjs'
import { readState, withLock } from './state.mjs'
import { parseUrl } from './wire.mjs'

export { BrokerError, BrokersError } from './errors.mjs'
export { BASE, BROKERS, NEXT } from './names.mjs'
export { setApart } from './paths.mjs'
export { status } from './status.mjs'

/** @typedef {import('./types.mjs').BrokerInfo} BrokerInfo */
/** @typedef {import('./types.mjs').BrokerStatus} BrokerStatus */
/** @typedef {import('./types.mjs').Options} Options */
/** @typedef {import('./types.mjs').Outcome} Outcome */

/**
 * Starts brokers and waits until they serve clients. Rejects with a `BrokersError` after all have
 * been tried.
 * @param {readonly string[]} [names] all base ones when empty
 * @param {Options} [options]
 * @returns {Promise<BrokerInfo[]>}
 */
export async function up(names = [], options = {}) {
  const outcomes = await upAll(names, options)
  if (outcomes.some(({ error }) => error)) throw new BrokersError(outcomes)
  return outcomes.flatMap(({ info }) => (info ? [info] : []))
}

/**
 * The same, but tells of each broker what became of it, so that a caller can do without some.
 * @param {readonly string[]} [names]
 * @param {Options} [options]
 * @returns {Promise<Outcome[]>}
 */
export async function upAll(names = [], options = {}) {
  const wanted = checkNames(names.length > 0 ? names : BASE)
  await installTogether(wanted, options).catch(() => {
    // Each broker tries again by itself, and reports.
  })
  return Promise.all(
    wanted.map(async (name) => {
      const started = performance.now()
      const outcome = await upOne(name, options).then(
        (info) => ({ info }),
        (error) => ({ error: asError(error) }),
      )
      return { name, ...outcome, took: Math.round(performance.now() - started) }
    }),
  )
}

/**
 * One call of the package manager for all of them is quicker than one each.
 * @param {string[]} names
 * @param {Options} options
 */
async function installTogether(names, options) {
  if (!isRoot() || !hasApt()) return
  const wanted = new Set()
  for (const name of names) {
    const packages = await missingPackages(await definitionOf(name).packages(isNext(name)))
    if (packages.length > 0 && (await sourceOf(name)) === 'native') {
      for (const each of packages) wanted.add(each)
    }
  }
  if (wanted.size > 0) await installPackages([...wanted], options)
}

/**
 * @param {string} name
 * @param {Options} options
 * @returns {Promise<BrokerInfo>}
 */
async function upOne(name, options) {
  const own = environmentUrl(name)
  return own ? checkOwn(name, own, options) : withLock(name, options, () => begin(name, options))
}

/**
 * The user's own server is only asked whether it answers.
 * @param {string} name
 * @param {string} url
 * @param {Options} options
 * @returns {Promise<BrokerInfo>}
 */
async function checkOwn(name, url, { signal }) {
  const variable = environmentVariable(name)
  try {
    const { port } = parseUrl(url, 0)
    const options = { timeout: 5000, signal, running: async () => true }
    const version = await waitHealthy(definitionOf(name), url, options)
    return { name, url, version: version ?? 'unknown', source: 'env', port }
  } catch (error) {
    const code = /** @type {{ code?: string }} */ (error).code
    if (code === 'BROKER_INTERRUPTED') throw error
    const cure = `check the server, or unset ${variable}`
    throw new BrokerError(
      'BROKER_NOT_HEALTHY',
      `the server of ${variable}: ${asError(error).message}; ${cure}`,
    )
  }
}

/**
 * Starts and waits; the caller holds the lock. One that never gets ready is ended again.
 * @param {string} name
 * @param {Options} options
 * @returns {Promise<BrokerInfo>}
 */
async function begin(name, options) {
  const definition = definitionOf(name)
  const manager = await managerOf(name)
  const before = await manager.inspect(definition, name)
  if (before.paused) await manager.resume(definition, name)
  const state = await manager.start(definition, name, options)
  const port = state.ports.main ?? 0
  const url = definition.url(port)
  try {
    const version = await waitHealthy(definition, url, {
      timeout: definition.startDeadline,
      signal: options.signal,
      running: async () => (await manager.inspect(definition, name)).running,
    })
    const known = version ?? state.installed ?? 'unknown'
    return { name, url, version: known, source: state.source, port }
  } catch (error) {
    const { message, code } = /** @type {BrokerError} */ (asError(error))
    const details = await manager.logs(definition, name, 20)
    if (!before.running) await manager.stop(definition, name, code !== 'BROKER_INTERRUPTED')
    if (code === 'BROKER_INTERRUPTED') throw error
    const where = state.source === 'native' ? `; its log: ${logFile(name)}` : ''
    throw new BrokerError('BROKER_NOT_HEALTHY', `${message}${where}`, { details })
  }
}

/**
 * Ends brokers; their data stays. Rejects after all have been tried.
 * @param {readonly string[]} [names] all that run when empty
 * @returns {Promise<string[]>} those that were running
 */
export async function down(names = []) {
  const wanted = names.length > 0 ? checkNames(names) : BROKERS.filter(managed)
  const results = await Promise.allSettled(wanted.map((name) => stop(name)))
  const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []))
  if (errors.length === 1) throw errors[0]
  if (errors.length > 1) throw new AggregateError(errors, errors.map((e) => e.message).join('; '))
  return wanted.filter((_, index) => {
    const result = results[index]
    return result?.status === 'fulfilled' && result.value
  })
}

/** Ends all brokers that were set apart, and resolves to the names of their folders. */
export async function downApart() {
  const { LONGSHORE_DATA, LONGSHORE_DOWNLOADS } = process.env
  const ended = []
  for (const name of listApart()) {
    setApart(name)
    try {
      if ((await down()).length > 0) ended.push(name)
    } finally {
      restore({ LONGSHORE_DATA, LONGSHORE_DOWNLOADS })
    }
  }
  return ended
}

/** @param {Record<string, string | undefined>} environment */
function restore(environment) {
  for (const [name, value] of Object.entries(environment)) {
    if (value === undefined) delete process.env[name]
    else process.env[name] = value
  }
}

/** @param {string} name */
function managed(name) {
  return environmentUrl(name) === undefined
}

/**
 * Starts one broker.
 * @param {string} name
 * @param {Options} [options]
 */
export async function start(name, options = {}) {
  checkNames([name])
  await managerOf(name)
  return withLock(name, options, () => begin(name, options))
}

/**
 * Ends one broker, orderly, or as a crash would.
 * @param {string} name
 * @param {{ hard?: boolean }} [options]
 * @returns {Promise<boolean>} whether it was running
 */
export async function stop(name, { hard = false } = {}) {
  checkNames([name])
  const manager = await managerOf(name)
  return withLock(name, {}, () => manager.stop(definitionOf(name), name, hard))
}

/**
 * Ends a broker and starts it again with the same URL and data.
 * @param {string} name
 * @param {{ hard?: boolean } & Options} [options] `hard`: ended by SIGKILL
 */
export async function restart(name, { hard = false, ...options } = {}) {
  checkNames([name])
  const manager = await managerOf(name)
  return withLock(name, options, async () => {
    await manager.stop(definitionOf(name), name, hard)
    return begin(name, options)
  })
}

/**
 * Freezes a broker: its connections stay open, but nothing answers.
 * @param {string} name
 */
export async function pause(name) {
  checkNames([name])
  const manager = await managerOf(name)
  await withLock(name, {}, () => manager.pause(definitionOf(name), name))
}

/**
 * Ends the pause.
 * @param {string} name
 */
export async function resume(name) {
  checkNames([name])
  const manager = await managerOf(name)
  await withLock(name, {}, () => manager.resume(definitionOf(name), name))
}

/**
 * Runs the broker's own tool for administrators (RabbitMQ: rabbitmqctl) and resolves to what it prints.
 * @param {string} name
 * @param {readonly string[]} args
 */
export async function tool(name, args) {
  checkNames([name])
  const command = await (await managerOf(name)).tool(definitionOf(name), name, args)
  const { code, stdout, output } = await tryRun(command, { timeout: 60_000 })
  if (code === 0) return stdout
  const details = lastLines(output, 20)
  const what = `the tool of ${name} failed: ${args.join(' ')}; see what it printed`
  throw new BrokerError('BROKER_TOOL_FAILED', what, { details })
}

/**
 * The URL of a broker that runs.
 * @param {string} name
 */
export async function url(name) {
  checkNames([name])
  const own = environmentUrl(name)
  if (own) return own
  const definition = definitionOf(name)
  const port = readState(name)?.ports.main
  const { running } = await (await managerOf(name)).inspect(definition, name)
  if (running && port !== undefined) return definition.url(port)
  throw new BrokerError('BROKER_NOT_RUNNING', `${name} is not running; run: brokers up ${name}`)
}

/**
 * The last lines of a broker's log.
 * @param {string} name
 * @param {number} [lines]
 */
export async function logs(name, lines = 100) {
  checkNames([name])
  return (await managerOf(name)).logs(definitionOf(name), name, lines)
}
