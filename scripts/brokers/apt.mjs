import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { BrokerError } from './errors.mjs'
import { isRoot, run, tryRun, which } from './run.mjs'
import { withLock } from './state.mjs'

const POLICY = '/usr/sbin/policy-rc.d'
const MARK = 'longshore: temporary'

/** @type {Promise<unknown> | undefined} */
let updated

export function hasApt() {
  return which('apt-get') !== undefined && which('dpkg-query') !== undefined
}

/**
 * Which of the packages this system lacks.
 * @param {readonly string[]} packages
 */
export async function missingPackages(packages) {
  if (packages.length === 0 || !hasApt()) return [...packages]
  // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg-query's own placeholders
  const args = ['-W', '-f', '${Package} ${db:Status-Status}\\n', ...packages]
  const { stdout } = await tryRun({ command: 'dpkg-query', args })
  const lines = stdout.split('\n')
  return packages.filter((name) => !lines.includes(`${name} installed`))
}

/**
 * @param {readonly string[]} packages
 * @param {import('./types.mjs').Options} options
 */
export async function installPackages(packages, options) {
  const lacking = await missingPackages(packages)
  if (lacking.length === 0) return
  if (!isRoot() || !hasApt()) {
    const cure = hasApt() ? `as root: apt-get install ${lacking.join(' ')}` : 'install it yourself'
    throw new BrokerError('BROKER_UNAVAILABLE', `not installed: ${lacking.join(', ')}; ${cure}`)
  }
  await withLock('apt', options, async () => {
    const missing = await missingPackages(packages)
    if (missing.length === 0) return
    options.log?.(`apt-get install ${missing.join(' ')}`)
    updated ??= tryRun(apt(['update']))
    await updated
    await withoutServices(() =>
      // Not ended by Ctrl-C: a half-done dpkg would need repair.
      run(apt(['install', '--no-install-recommends', ...missing]), {
        what: 'apt-get install',
        cure: `try by hand: apt-get install ${missing.join(' ')}`,
      }),
    )
  })
}

/** @param {string[]} args */
function apt(args) {
  const options = ['-y', '-q', '-o', 'DPkg::Lock::Timeout=300', '-o', 'Dpkg::Use-Pty=0']
  return {
    command: 'apt-get',
    args: [...options, ...args],
    env: { DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C.UTF-8' },
  }
}

/**
 * Has packages start no service of theirs while the action runs.
 * @template T
 * @param {() => Promise<T>} action
 * @returns {Promise<T>}
 */
async function withoutServices(action) {
  const left = existsSync(POLICY) && readFileSync(POLICY, 'utf8').includes(MARK)
  if (existsSync(POLICY) && !left) return action()
  writeFileSync(POLICY, `#!/bin/sh\n# ${MARK}, may be deleted\nexit 101\n`, { mode: 0o755 })
  try {
    return await action()
  } finally {
    rmSync(POLICY, { force: true })
  }
}

/** The Debian archive that this system takes its packages from, e.g. for debootstrap. */
export async function debianMirror() {
  const format = '$(ORIGIN)|$(CODENAME)|$(REPO_URI)'
  const args = ['indextargets', '--format', format, 'Created-By: Packages']
  const { stdout } = await tryRun({ command: 'apt-get', args })
  for (const line of stdout.split('\n')) {
    const [origin, codename = '', uri] = line.split('|')
    if (origin === 'Debian' && uri && /^[a-z]+$/.test(codename)) return uri
  }
  return undefined
}

/** The major version of Postgres that this system's packages offer. */
export async function postgresVersion() {
  const { stdout } = await tryRun({ command: 'apt-cache', args: ['depends', 'postgresql'] })
  return /Depends: postgresql-(\d+)/.exec(stdout)?.[1]
}
