import { parseArgs } from 'node:util'
import { asError, BrokerError } from './errors.mjs'
import * as brokers from './index.mjs'
import { BASE, BROKERS, checkNames } from './names.mjs'
import { printOutcomes, printStatus } from './print.mjs'

const HELP = `Brings up the brokers that tests, benchmarks and examples need.

usage: npm run brokers -- COMMAND [NAME…] [options]

  up [NAME…]        start, and wait until they serve clients (no name: the five base ones)
  down [NAME…]      end; the data stays (no name: all that run)
  status [NAME…]    how they are (no name: all)
  url NAME          print the URL alone
  logs NAME         print the last lines of the log
  start, stop, restart NAME…
  pause, resume NAME…   freeze a broker with its connections open, and go on

options
  --all             the base and the next versions (up, down, status, restart)
  --hard            stop and restart: end it by SIGKILL, like a crash
  --lines N         logs: how many lines (100)
  --json            print JSON
  -h, --help        print this

names: ${BROKERS.join(' ')}
More: docs/brokers.md
`

const OPTIONS = /** @type {const} */ ({
  all: { type: 'boolean', default: false },
  hard: { type: 'boolean', default: false },
  lines: { type: 'string', default: '100' },
  json: { type: 'boolean', default: false },
  help: { type: 'boolean', short: 'h', default: false },
})

/** @typedef {{ all: boolean, hard: boolean, lines: string, json: boolean, help: boolean }} Flags */

const ACTIONS = {
  restart: brokers.restart,
  stop: brokers.stop,
  pause: brokers.pause,
  resume: brokers.resume,
}

/** A wrong command line. */
class UsageError extends Error {}

/** @param {string} line */
function log(line) {
  process.stderr.write(`${line}\n`)
}

/** @param {unknown} value */
function printJson(value) {
  process.stdout.write(`${JSON.stringify(value, undefined, 2)}\n`)
}

/**
 * @param {string[]} args
 * @returns {Promise<number>} the exit code: 0 done, 1 something failed, 2 wrong command line
 */
export async function main(args) {
  try {
    const { values, positionals } = parse(args)
    const [command, ...names] = positionals
    if (values.help || command === undefined) {
      process.stdout.write(HELP)
      return values.help ? 0 : 2
    }
    return await perform(command, values.all ? [...BROKERS] : checkNames(names), values)
  } catch (error) {
    return report(error)
  }
}

/** @param {string[]} args */
function parse(args) {
  try {
    return parseArgs({ args, options: OPTIONS, allowPositionals: true })
  } catch (error) {
    throw new UsageError(asError(error).message)
  }
}

/** @param {unknown} thrown */
function report(thrown) {
  const error = asError(thrown)
  log(`brokers: ${error.message}`)
  if (error instanceof BrokerError && error.details) log(error.details)
  if (error instanceof UsageError) log('see: npm run brokers -- --help')
  const code = /** @type {{ code?: string }} */ (error).code
  if (code === 'BROKER_INTERRUPTED') return 130
  return error instanceof UsageError || code === 'BROKER_UNKNOWN' ? 2 : 1
}

/**
 * @param {string} command
 * @param {string[]} names
 * @param {Flags} flags
 */
async function perform(command, names, flags) {
  switch (command) {
    case 'up':
      return bring(names, flags)
    case 'down': {
      const ended = await brokers.down(flags.all ? [] : names)
      if (flags.json) printJson(ended)
      else log(ended.length > 0 ? `ended: ${ended.join(', ')}` : 'none was running')
      return 0
    }
    case 'status': {
      const all = await brokers.status(names)
      if (flags.json) printJson(all)
      else printStatus(all)
      return names.length > 0 && all.some(({ state }) => state !== 'up') ? 1 : 0
    }
    case 'url': {
      const url = await brokers.url(one(names))
      if (flags.json) printJson({ name: one(names), url })
      else process.stdout.write(`${url}\n`)
      return 0
    }
    case 'logs': {
      const lines = Number(flags.lines)
      if (!Number.isInteger(lines) || lines < 1) throw new UsageError('--lines wants a number')
      process.stdout.write(`${await brokers.logs(one(names), lines)}\n`)
      return 0
    }
    case 'start':
      return bring(some(names), flags)
    case 'restart':
    case 'stop':
    case 'pause':
    case 'resume':
      return each(command, some(names), flags)
    default:
      throw new UsageError(`no command '${command}'`)
  }
}

/**
 * @param {string[]} names
 * @param {Flags} flags
 */
async function bring(names, flags) {
  const options = { log, signal: interruptible() }
  const outcomes = await brokers.upAll(names.length > 0 ? names : BASE, options)
  if (flags.json) printJson(outcomes.map(plain))
  else printOutcomes(outcomes)
  if (options.signal.aborted) return 130
  return outcomes.some(({ error }) => error) ? 1 : 0
}

/**
 * @param {'restart' | 'stop' | 'pause' | 'resume'} command
 * @param {string[]} names
 * @param {Flags} flags
 */
async function each(command, names, { hard, json }) {
  const options = { hard, log, signal: interruptible() }
  const outcomes = await Promise.all(
    names.map(async (name) => {
      try {
        const result = await ACTIONS[command](name, options)
        return { name, ...(typeof result === 'object' ? { info: result } : {}) }
      } catch (error) {
        return { name, error: asError(error) }
      }
    }),
  )
  if (json) printJson(outcomes.map(plain))
  for (const { name, error } of json ? [] : outcomes) {
    log(`${name}: ${error ? error.message : `${command} done`}`)
    if (error instanceof BrokerError && error.details) log(error.details)
  }
  if (options.signal.aborted) return 130
  return outcomes.some(({ error }) => error) ? 1 : 0
}

/** @param {{ name: string, info?: object, error?: Error & { code?: string }, took?: number }} outcome */
function plain({ name, info, error, took }) {
  return {
    name,
    ...info,
    ...(error ? { error: { code: error.code, message: error.message } } : {}),
    took,
  }
}

/** Aborts at Ctrl-C; a second one ends us at once. */
function interruptible() {
  const controller = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => {
      log('interrupted: ending what is being started')
      controller.abort()
    })
  }
  return controller.signal
}

/** @param {string[]} names */
function some(names) {
  if (names.length === 0) throw new UsageError('which broker? give a name')
  return names
}

/** @param {string[]} names */
function one(names) {
  const [name] = some(names)
  if (names.length > 1 || name === undefined) throw new UsageError('one broker at a time')
  return name
}
