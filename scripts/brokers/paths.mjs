import { createHash } from 'node:crypto'
import { chmodSync, existsSync, lstatSync, mkdirSync, readdirSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { BrokerError } from './errors.mjs'

/** The repository's root. */
export const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..')

/** The one folder for data, logs and downloads. */
export function dataRoot() {
  return resolve(process.env.LONGSHORE_DATA || join(ROOT, '.longshore'))
}

/** Tells this clone's processes and containers from another's. */
export function dataHash() {
  return createHash('sha256').update(dataRoot()).digest('hex').slice(0, 10)
}

/** The names that `setApart` was called with. */
export function listApart() {
  const dir = join(dataRoot(), 'apart')
  return existsSync(dir) ? readdirSync(dir) : []
}

/** @param {string} name */
export function brokerDir(name) {
  return join(dataRoot(), 'brokers', name)
}

/** @param {string[]} parts */
export function downloads(...parts) {
  return join(process.env.LONGSHORE_DOWNLOADS || join(dataRoot(), 'downloads'), ...parts)
}

/**
 * From now on this process and its children have brokers of their own, to be broken without disturbing anybody. What was
 * downloaded is shared with the others.
 * @param {string} name
 */
export function setApart(name) {
  process.env.LONGSHORE_DOWNLOADS = downloads()
  process.env.LONGSHORE_DATA = join(dataRoot(), 'apart', name)
}

/** @param {string} name */
export function logFile(name) {
  return join(brokerDir(name), 'log', `${name}.log`)
}

/**
 * Makes a folder that other users, such as Postgres's, may pass through.
 * @param {string} dir
 */
export function makeDir(dir) {
  const made = mkdirSync(dir, { recursive: true, mode: 0o755 })
  if (made === undefined) return dir
  for (let path = dir; path.length >= made.length; path = dirname(path)) chmodSync(path, 0o755)
  return dir
}

/**
 * The first folder on the way to `path` that the user may not pass through.
 * @param {string} path
 * @param {{ uid: number, gid: number }} user
 */
export function closedParent(path, user) {
  for (let dir = path; ; dir = dirname(dir)) {
    const stat = statSync(dir)
    const bit = stat.uid === user.uid ? 0o100 : stat.gid === user.gid ? 0o010 : 0o001
    if ((stat.mode & bit) === 0) return dir
    if (dir === dirname(dir)) return undefined
  }
}

/**
 * A folder below the system's one for temporary files, for a server whose user can't reach ours.
 * @param {string} name
 */
export function temporaryDir(name) {
  const dir = join(tmpdir(), `longshore-${dataHash()}`)
  makeDir(dir)
  const stat = lstatSync(dir)
  if (!stat.isDirectory() || stat.uid !== process.getuid?.()) {
    throw new BrokerError(
      'BROKER_UNAVAILABLE',
      `${dir} belongs to somebody else; set LONGSHORE_DATA to a folder of yours`,
    )
  }
  return makeDir(join(dir, name))
}
