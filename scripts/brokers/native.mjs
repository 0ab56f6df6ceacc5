import { existsSync, readFileSync, renameSync } from 'node:fs'
import { dirname } from 'node:path'
import { BrokerError, noTool, throwIfAborted } from './errors.mjs'
import { isNext } from './names.mjs'
import { brokerDir, dataHash, logFile, makeDir } from './paths.mjs'
import { allotPorts } from './ports.mjs'
import * as processes from './process.mjs'
import { lastLines } from './run.mjs'
import { readState, writeState } from './state.mjs'

/** In the environment of every server that we start: finds it again when its state file is lost. */
const MARK = 'LONGSHORE_BROKER'

const STOP_GRACE = 30_000

/** @param {string} name */
function mark(name) {
  return `${dataHash()}/${name}`
}

/** @param {string} name */
function runningProcess(name) {
  const state = readState(name)
  if (state?.source !== 'native' || !processes.isAlive(state.process)) return undefined
  return state.process
}

/**
 * Ends what is left of a broker: children of one that was killed, or a whole one whose state file
 * was deleted.
 * @param {string} name
 * @param {import('./types.mjs').Log} [log]
 * @returns {Promise<boolean>} whether a lost one was found
 */
async function endLeftovers(name, log) {
  const before = readState(name)?.process
  if (before) await processes.end(before, 'SIGKILL', 0)
  const lost = processes.findMarked(MARK, mark(name))
  for (const ident of lost) {
    if (!processes.isAlive(ident)) continue
    log?.(`ending process ${ident.pid}, which was left over`)
    await processes.end(ident, 'SIGTERM', 3000)
  }
  return lost.length > 0
}

/** Servers that run on this machine without Docker. @type {import('./types.mjs').Manager} */
export const native = {
  async start(definition, name, { log, signal }) {
    const tell = (/** @type {string} */ line) => log?.(`${name}: ${line}`)
    const before = readState(name)
    if (before && runningProcess(name)) return before
    await endLeftovers(name, tell)
    const context = { name, next: isNext(name), dir: makeDir(brokerDir(name)), log: tell, signal }
    const installed = await definition.install({ ...context, ports: {} })
    const ports = await allotPorts(definition.ports, before?.ports ?? {}, tell)
    const command = await definition.prepare({ ...context, ports }, installed)
    throwIfAborted(signal)
    rotate(logFile(name))
    const env = { ...command.env, [MARK]: mark(name) }
    const ident = await processes.spawnServer({ ...command, env }, logFile(name))
    /** @type {import('./types.mjs').State} */
    const state = {
      source: 'native',
      ports,
      process: ident,
      startedAt: Date.now(),
      installed: installed.version,
    }
    writeState(name, state)
    return state
  },

  async stop(definition, name, hard) {
    const ident = runningProcess(name)
    if (ident) await processes.end(ident, hard ? 'SIGKILL' : definition.stopSignal, STOP_GRACE)
    const lost = await endLeftovers(name)
    const state = readState(name)
    if (state) writeState(name, { ...state, process: undefined, startedAt: undefined })
    return ident !== undefined || lost
  },

  async pause(_definition, name) {
    processes.signalFamily(requireRunning(name), 'SIGSTOP')
  },

  async resume(_definition, name) {
    processes.signalFamily(requireRunning(name), 'SIGCONT')
  },

  async inspect(_definition, name) {
    const ident = runningProcess(name)
    return { running: ident !== undefined, paused: ident ? processes.isStopped(ident) : false }
  },

  async logs(_definition, name, lines) {
    const file = logFile(name)
    return existsSync(file) ? lastLines(readFileSync(file, 'utf8'), lines) : ''
  },

  async tool(definition, name, args) {
    requireRunning(name)
    const ports = readState(name)?.ports ?? {}
    const log = () => {}
    const context = {
      name,
      next: isNext(name),
      dir: brokerDir(name),
      ports,
      log,
      signal: undefined,
    }
    const installed = await definition.install(context)
    if (definition.tool) return definition.tool.native(context, installed, args)
    throw noTool(name)
  },
}

/** @param {string} name */
function requireRunning(name) {
  const ident = runningProcess(name)
  if (ident) return ident
  throw new BrokerError('BROKER_NOT_RUNNING', `${name} is not running; start it first`)
}

/**
 * Keeps the previous run's log as `.1`.
 * @param {string} file
 */
function rotate(file) {
  makeDir(dirname(file))
  if (existsSync(file)) renameSync(file, `${file}.1`)
}
