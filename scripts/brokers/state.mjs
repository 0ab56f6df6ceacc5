import { existsSync, linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { BrokerError, throwIfAborted } from './errors.mjs'
import { brokerDir, dataRoot, downloads, makeDir } from './paths.mjs'
import { identify, isAlive } from './process.mjs'

let serial = 0

/** @param {string} path */
function readJson(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'))
  } catch {
    return undefined
  }
}

/**
 * @param {string} name
 * @returns {import('./types.mjs').State | undefined}
 */
export function readState(name) {
  const state = readJson(join(brokerDir(name), 'state.json'))
  return typeof state?.ports?.main === 'number' ? state : undefined
}

/**
 * @param {string} name
 * @param {import('./types.mjs').State} state
 */
export function writeState(name, state) {
  const path = join(makeDir(brokerDir(name)), 'state.json')
  const temporary = `${path}.${process.pid}.${serial++}`
  writeFileSync(temporary, `${JSON.stringify(state, undefined, 2)}\n`)
  renameSync(temporary, path)
}

/**
 * Runs an action while no other one, of this process or another, holds the lock. A lock whose
 * holder died is taken over.
 * @template T
 * @param {string} name
 * @param {import('./types.mjs').Options} options
 * @param {() => Promise<T>} action
 * @returns {Promise<T>}
 */
export function withLock(name, options, action) {
  return locked(join(dataRoot(), 'locks'), name, options, action)
}

/**
 * The same for what is downloaded, which several data folders may share.
 * @template T
 * @param {string} name
 * @param {import('./types.mjs').Options} options
 * @param {() => Promise<T>} action
 * @returns {Promise<T>}
 */
export function withDownloadLock(name, options, action) {
  return locked(downloads('locks'), name, options, action)
}

/**
 * @template T
 * @param {string} folder
 * @param {string} name
 * @param {import('./types.mjs').Options} options
 * @param {() => Promise<T>} action
 * @returns {Promise<T>}
 */
async function locked(folder, name, options, action) {
  const path = join(makeDir(folder), name)
  const mine = `${path}.${process.pid}.${serial++}`
  const token = JSON.stringify({ ...identify(process.pid), token: mine })
  const started = Date.now()
  let told = false
  for (;;) {
    throwIfAborted(options.signal)
    if (tryLock(path, mine, token)) break
    const holder = readJson(path)
    if (!told && holder?.pid !== process.pid && Date.now() - started > 1000) {
      told = true
      options.log?.(`${name}: waiting for process ${holder?.pid}, which is at it`)
    }
    if (Date.now() - started > 900_000) {
      const cure = `wait for it, or end it and try again`
      throw new BrokerError('BROKER_BUSY', `process ${holder?.pid} has been at it; ${cure}`)
    }
    await sleep(40)
  }
  try {
    return await action()
  } finally {
    if (readJson(path)?.token === mine) rmSync(path, { force: true })
  }
}

/**
 * @param {string} path
 * @param {string} mine
 * @param {string} token
 */
function tryLock(path, mine, token) {
  const holder = readJson(path)
  if (!isAlive(holder) && existsSync(path)) breakLock(path, mine, holder?.token)
  try {
    makeDir(dirname(path))
    writeFileSync(mine, token)
    linkSync(mine, path)
    return readJson(path)?.token === mine
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === 'EEXIST') return false
    throw error
  } finally {
    rmSync(mine, { force: true })
  }
}

/**
 * Takes a dead holder's lock away, and puts it back should it be another's by now.
 * @param {string} path
 * @param {string} mine
 * @param {string | undefined} token the dead holder's
 */
function breakLock(path, mine, token) {
  const aside = `${mine}.stale`
  try {
    renameSync(path, aside)
    if (readJson(aside)?.token !== token) linkSync(aside, path)
  } catch {
    // Another process was faster.
  } finally {
    rmSync(aside, { force: true })
  }
}
