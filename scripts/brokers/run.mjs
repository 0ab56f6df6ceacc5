import { spawn } from 'node:child_process'
import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { BrokerError, throwIfAborted } from './errors.mjs'
import { end, identify } from './process.mjs'

/**
 * @typedef {object} RunOptions
 * @property {AbortSignal} [signal] ends the command
 * @property {number} [timeout] milliseconds
 * @property {string} [input]
 */

/**
 * Runs a command in a session of its own (so that Ctrl-C is for us to handle) and collects what
 * it prints.
 * @param {import('./types.mjs').Command} command
 * @param {RunOptions} [options]
 * @returns {Promise<{ code: number, stdout: string, output: string }>} `output`: with stderr
 */
export function tryRun(command, options = {}) {
  throwIfAborted(options.signal)
  return new Promise((resolve) => {
    const child = spawn(command.command, command.args, {
      detached: true,
      stdio: 'pipe',
      env: { ...process.env, ...command.env },
      ...(command.cwd === undefined ? {} : { cwd: command.cwd }),
      ...(command.uid === undefined ? {} : { uid: command.uid }),
      ...(command.gid === undefined ? {} : { gid: command.gid }),
    })
    let stdout = ''
    let output = ''
    child.stdout.on('data', (chunk) => {
      stdout += chunk
      output += chunk
    })
    child.stderr.on('data', (chunk) => {
      output += chunk
    })
    const ident = child.pid === undefined ? undefined : identify(child.pid)
    const stop = () => ident && void end(ident, 'SIGTERM', 2000)
    const timer = options.timeout === undefined ? undefined : setTimeout(stop, options.timeout)
    options.signal?.addEventListener('abort', stop, { once: true })
    const finish = (/** @type {number} */ code) => {
      clearTimeout(timer)
      options.signal?.removeEventListener('abort', stop)
      resolve({ code, stdout, output })
    }
    child.once('error', (error) => {
      output += error.message
      finish(127)
    })
    child.once('close', (code) => finish(code ?? 1))
    child.stdin.on('error', () => {})
    child.stdin.end(options.input ?? '')
  })
}

/**
 * The same, but a failure is an error that shows the last lines.
 * @param {import('./types.mjs').Command} command
 * @param {RunOptions & { what: string, cure: string }} options `what` was tried, and the cure
 */
export async function run(command, options) {
  const result = await tryRun(command, options)
  throwIfAborted(options.signal)
  if (result.code === 0) return result
  throw new BrokerError('BROKER_INSTALL_FAILED', `${options.what} failed; ${options.cure}`, {
    details: lastLines(result.output, 20),
  })
}

/**
 * @param {string} text
 * @param {number} count
 */
export function lastLines(text, count) {
  return text.trimEnd().split('\n').slice(-count).join('\n')
}

/** @param {string} path */
export function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

/**
 * Where a program is, looking where system administrators' programs are as well.
 * @param {string} program
 */
export function which(program) {
  const dirs = (process.env.PATH ?? '').split(delimiter).filter(Boolean)
  const paths = [...dirs, '/usr/sbin', '/usr/local/sbin'].map((dir) => join(dir, program))
  return paths.find(isExecutable)
}

export function isRoot() {
  return process.getuid?.() === 0
}
