import { existsSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { hasApt, installPackages, postgresVersion } from './apt.mjs'
import { installDebianNext, nextRunner } from './debian-next.mjs'
import { BrokerError } from './errors.mjs'
import { closedParent, makeDir, temporaryDir } from './paths.mjs'
import { probePostgres } from './probes.mjs'
import { inspect } from './process.mjs'
import { isExecutable, isRoot, run, which } from './run.mjs'
import { findUser, systemRunner } from './runner.mjs'

const DEBIAN = '/usr/lib/postgresql'
const USER = 'postgres'

/** Servers from 15.19, 17.11 on let replication slots use only the plugins named in it. */
const PLUGINS = 'output_plugin_libraries'

/** @type {import('./types.mjs').Definition} */
export const postgres = {
  kind: 'postgres',
  ports: ['main'],
  containerPort: 5432,
  // A fast shutdown: sessions are ended, the data is written.
  stopSignal: 'SIGINT',
  startDeadline: 60_000,
  url: (port) => `postgres://longshore:longshore@127.0.0.1:${port}/longshore`,
  packages: async (next) => (next ? [] : wantedPackages()),

  async install({ next, name, dir, log, signal }) {
    if (next) {
      await installDebianNext({ log, signal })
      return { runner: nextRunner(dir), program: `${DEBIAN}/17/bin` }
    }
    await installPackages(await wantedPackages(), { log, signal })
    const program = installedPrograms() ?? programsOnPath()
    if (!program) {
      throw new BrokerError('BROKER_UNAVAILABLE', 'no initdb on PATH; install PostgreSQL')
    }
    return { runner: systemRunner(reachableDir(name, dir, log)), program }
  },

  async prepare({ ports, signal }, { runner, program }) {
    const about = await ask(runner, program, '-V')
    const major = /\d+/.exec(about)?.[0] ?? 'unknown'
    const data = `${runner.dir}/data/${major}`
    if (!existsSync(runner.host(`${data}/PG_VERSION`))) {
      await makeData(runner, program, data, signal)
    }
    dropStaleLock(runner.host(`${data}/postmaster.pid`))
    const settings = {
      port: String(ports.main),
      listen_addresses: '127.0.0.1',
      unix_socket_directories: '',
      wal_level: 'logical',
      max_replication_slots: '10',
      max_wal_senders: '10',
      max_connections: '200',
      // Not the system's own, whatever it is.
      lc_messages: 'C',
      ...((await ask(runner, program, '--describe-config')).includes(PLUGINS)
        ? { [PLUGINS]: 'pgoutput, test_decoding, wal2json' }
        : {}),
    }
    const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const args = ['-D', data, ...options]
    return runner.wrap({ command: `${program}/postgres`, args, cwd: data, user: USER })
  },

  probe: probePostgres,
}

/**
 * Postgres takes a killed one that nobody has waited for yet (a zombie) for a running one.
 * @param {string} file
 */
function dropStaleLock(file) {
  if (!existsSync(file)) return
  const pid = Number(readFileSync(file, 'utf8').split('\n')[0])
  if (inspect(pid) === undefined) rmSync(file, { force: true })
}

/**
 * @param {import('./types.mjs').Runner} runner
 * @param {string} program
 * @param {string} option
 */
async function ask(runner, program, option) {
  const command = runner.wrap({ command: `${program}/postgres`, args: [option] })
  const options = { what: `${program}/postgres ${option}`, cure: 'install PostgreSQL again' }
  return (await run(command, options)).stdout
}

/**
 * Made aside and renamed, so that data cut short is not taken for whole.
 * @param {import('./types.mjs').Runner} runner
 * @param {string} program
 * @param {string} data
 * @param {AbortSignal | undefined} signal
 */
async function makeData(runner, program, data, signal) {
  const making = `${data}.tmp`
  rmSync(runner.host(making), { recursive: true, force: true })
  makeDir(runner.host(dirname(data)))
  const cure = 'see the lines below'
  const options = { cure, ...(signal ? { signal } : {}) }
  if (isRoot()) {
    const own = ['-d', '-o', USER, '-m', '700', making]
    await run(runner.wrap({ command: 'install', args: own }), {
      what: 'making its folder',
      ...options,
    })
  }
  const initdb = ['-D', making, '-U', 'longshore', '-A', 'trust', '-E', 'UTF8', '--no-sync']
  const locale = '--locale=C.UTF-8'
  await run(
    runner.wrap({ command: `${program}/initdb`, args: [...initdb, locale], user: USER, cwd: '/' }),
    { what: 'initdb', ...options },
  )
  const single = ['--single', '-D', making, 'postgres']
  await run(runner.wrap({ command: `${program}/postgres`, args: single, user: USER, cwd: '/' }), {
    what: 'creating the database',
    input: 'CREATE DATABASE longshore;\n',
    ...options,
  })
  renameSync(runner.host(making), runner.host(data))
}

/** The newest version of Debian's that is installed; its programs are not on PATH. */
function installedVersion() {
  if (!existsSync(DEBIAN)) return undefined
  const versions = readdirSync(DEBIAN).sort((a, b) => Number(b) - Number(a))
  return versions.find((version) => isExecutable(`${DEBIAN}/${version}/bin/initdb`))
}

async function wantedPackages() {
  const installed = installedVersion()
  if (!hasApt() || (!installed && programsOnPath())) return []
  const version = installed ?? (await postgresVersion())
  return version ? [`postgresql-${version}`, `postgresql-${version}-wal2json`] : []
}

function installedPrograms() {
  const version = installedVersion()
  return version && `${DEBIAN}/${version}/bin`
}

function programsOnPath() {
  const initdb = which('initdb')
  return initdb && dirname(initdb)
}

/**
 * Postgres refuses to run as root, and its user must be able to reach the data.
 * @param {string} name
 * @param {string} dir
 * @param {import('./types.mjs').Log} log
 */
function reachableDir(name, dir, log) {
  if (!isRoot()) return dir
  const user = findUser(USER)
  const closed = closedParent(makeDir(dir), user)
  if (!closed) return dir
  const other = temporaryDir(name)
  if (!existsSync(join(other, 'data'))) {
    log(`its data goes to ${other}, since user ${USER} may not pass through ${closed}`)
  }
  return other
}
