import { execFileSync, spawn } from 'node:child_process'
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** @typedef {{ pid: number, parent: number, group: number, session: number, state: string, startTime: string }} Entry */

const LINUX = process.platform === 'linux'

/**
 * What the system says about a process, or undefined when there is none. A zombie counts as none.
 * @param {number} pid
 * @returns {Entry | undefined}
 */
export function inspect(pid) {
  if (!LINUX) return listByPs(['-p', String(pid)])[0]
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    const [state = '', parent, group, session] = fields
    if (state === 'Z' || state === 'X') return undefined
    return {
      pid,
      parent: Number(parent),
      group: Number(group),
      session: Number(session),
      state,
      startTime: fields[19] ?? '',
    }
  } catch {
    return undefined
  }
}

/** @returns {Entry[]} */
function listProcesses() {
  if (!LINUX) return listByPs(['-A'])
  return readdirSync('/proc').flatMap((name) => {
    const entry = /^\d+$/.test(name) ? inspect(Number(name)) : undefined
    return entry ? [entry] : []
  })
}

/**
 * @param {string[]} which
 * @returns {Entry[]}
 */
function listByPs(which) {
  const columns = ['pid=', 'ppid=', 'pgid=', 'sess=', 'stat=', 'lstart=']
  try {
    const options = {
      encoding: /** @type {const} */ ('utf8'),
      env: { ...process.env, LC_ALL: 'C' },
    }
    const text = execFileSync('ps', [...which, '-o', columns.join(',')], options)
    return text.split('\n').flatMap((line) => {
      const [pid, parent, group, session, state = '', ...start] = line.trim().split(/\s+/)
      if (!pid || state.startsWith('Z')) return []
      const entry = { pid: Number(pid), parent: Number(parent), group: Number(group) }
      return [{ ...entry, session: Number(session), state, startTime: start.join(' ') }]
    })
  } catch {
    return []
  }
}

/**
 * @param {number} pid
 * @returns {import('./types.mjs').Ident | undefined}
 */
export function identify(pid) {
  const entry = inspect(pid)
  return entry && { pid, startTime: entry.startTime }
}

/**
 * Whether the very process that was started still runs.
 * @param {import('./types.mjs').Ident | undefined} ident
 */
export function isAlive(ident) {
  const entry = ident && inspect(ident.pid)
  return entry !== undefined && entry.startTime === ident?.startTime
}

/** @param {import('./types.mjs').Ident} ident */
export function isStopped(ident) {
  return isAlive(ident) && (inspect(ident.pid)?.state.startsWith('T') ?? false)
}

/**
 * The process with all that belongs to it: its group, its session and its descendants. (Postgres
 * and Erlang put their children into sessions of their own.) Works after the first one has died
 * as well, as long as its id has not been given to another.
 * @param {import('./types.mjs').Ident} ident
 * @returns {import('./types.mjs').Ident[]}
 */
function family(ident) {
  const leader = inspect(ident.pid)
  if (leader && leader.startTime !== ident.startTime) return []
  const all = listProcesses()
  const members = new Set([ident.pid])
  for (const entry of all) {
    if (entry.group === ident.pid || entry.session === ident.pid) members.add(entry.pid)
  }
  for (let size = 0; size !== members.size; ) {
    size = members.size
    for (const entry of all) if (members.has(entry.parent)) members.add(entry.pid)
  }
  members.delete(process.pid)
  return all.flatMap(({ pid, startTime }) => (members.has(pid) ? [{ pid, startTime }] : []))
}

/**
 * @param {import('./types.mjs').Ident[]} idents
 * @param {NodeJS.Signals} signal
 */
function signalAll(idents, signal) {
  for (const ident of idents) {
    if (!isAlive(ident)) continue
    try {
      process.kill(ident.pid, signal)
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'ESRCH') throw error
    }
  }
}

/**
 * Stops or continues a process with its family; new children that came meanwhile are caught too.
 * @param {import('./types.mjs').Ident} ident
 * @param {'SIGSTOP' | 'SIGCONT'} signal
 */
export function signalFamily(ident, signal) {
  signalAll([ident], signal)
  for (let seen = 0; ; ) {
    const members = family(ident)
    signalAll(members, signal)
    if (members.length <= seen) return
    seen = members.length
  }
}

/**
 * Ends a process and its family: orderly first, by force after the grace time.
 * @param {import('./types.mjs').Ident} ident
 * @param {NodeJS.Signals} signal SIGKILL: all at once, like a crash
 * @param {number} grace milliseconds
 */
export async function end(ident, signal, grace) {
  const known = family(ident)
  if (signal !== 'SIGKILL' && isAlive(ident)) {
    signalAll([ident], signal)
    signalAll(known, 'SIGCONT')
    await gone([ident], grace)
  }
  for (const deadline = Date.now() + 10_000; Date.now() < deadline; ) {
    const rest = [...known, ...family(ident)].filter(isAlive)
    if (rest.length === 0) return
    signalAll(rest, 'SIGKILL')
    await gone(rest, 500)
  }
}

/**
 * @param {import('./types.mjs').Ident[]} idents
 * @param {number} patience milliseconds
 */
async function gone(idents, patience) {
  for (const deadline = Date.now() + patience; Date.now() < deadline; await sleep(15)) {
    if (!idents.some(isAlive)) return
  }
}

/**
 * Processes that carry the variable in their environment: ours, though their state file is lost.
 * @param {string} variable
 * @param {string} value
 * @returns {import('./types.mjs').Ident[]}
 */
export function findMarked(variable, value) {
  if (!LINUX) return []
  return listProcesses().flatMap(({ pid, startTime }) => {
    try {
      const environment = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
      return environment.includes(`${variable}=${value}`) ? [{ pid, startTime }] : []
    } catch {
      return []
    }
  })
}

/**
 * Starts a server that outlives us, in a session of its own, its output going to the file.
 * @param {import('./types.mjs').Command} command
 * @param {string} file
 * @returns {Promise<import('./types.mjs').Ident | undefined>} undefined: it ended at once
 */
export async function spawnServer(command, file) {
  const output = openSync(file, 'a')
  try {
    const child = spawn(command.command, command.args, {
      detached: true,
      stdio: ['ignore', output, output],
      env: { ...process.env, ...command.env },
      ...(command.cwd === undefined ? {} : { cwd: command.cwd }),
      ...(command.uid === undefined ? {} : { uid: command.uid }),
      ...(command.gid === undefined ? {} : { gid: command.gid }),
    })
    await new Promise((resolve, reject) => {
      child.once('spawn', resolve)
      child.once('error', reject)
    })
    child.unref()
    return child.pid === undefined ? undefined : identify(child.pid)
  } finally {
    closeSync(output)
  }
}
