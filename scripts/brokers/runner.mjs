import { readFileSync } from 'node:fs'
import { BrokerError } from './errors.mjs'
import { makeDir } from './paths.mjs'
import { isRoot } from './run.mjs'

/** @param {string} name */
export function findUser(name) {
  for (const line of readFileSync('/etc/passwd', 'utf8').split('\n')) {
    const [login, , uid, gid] = line.split(':')
    if (login === name) return { uid: Number(uid), gid: Number(gid) }
  }
  throw new BrokerError('BROKER_UNAVAILABLE', `this system has no user '${name}'; add one`)
}

/**
 * Runs programs on this system. Another user can be named only by root; others ignore it.
 * @param {string} dir the broker's own folder
 * @returns {import('./types.mjs').Runner}
 */
export function systemRunner(dir) {
  makeDir(dir)
  return {
    dir,
    host: (path) => path,
    wrap: ({ user, ...command }) =>
      user && isRoot() ? { ...command, ...findUser(user) } : command,
  }
}
