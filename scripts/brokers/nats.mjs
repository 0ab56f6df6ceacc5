import { mkdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { installPackages } from './apt.mjs'
import { BrokerError } from './errors.mjs'
import { downloads, makeDir } from './paths.mjs'
import { probeNats } from './probes.mjs'
import { isExecutable, run, which } from './run.mjs'
import { systemRunner } from './runner.mjs'
import { withDownloadLock } from './state.mjs'

const NEXT_VERSION = '2.15.2'
const MODULE = `github.com/nats-io/nats-server/v2@v${NEXT_VERSION}`

/** @type {import('./types.mjs').Definition} */
export const nats = {
  kind: 'nats',
  ports: ['main'],
  containerPort: 4222,
  stopSignal: 'SIGTERM',
  startDeadline: 30_000,
  url: (port) => `nats://127.0.0.1:${port}`,
  packages: async (next) => (next || which('nats-server') ? [] : ['nats-server']),

  async install({ next, dir, log, signal }) {
    if (next) return { runner: systemRunner(dir), program: await build({ log, signal }) }
    if (!which('nats-server')) await installPackages(['nats-server'], { log, signal })
    const program = which('nats-server')
    if (program) return { runner: systemRunner(dir), program }
    throw new BrokerError('BROKER_UNAVAILABLE', 'no nats-server on PATH; install the NATS server')
  },

  async prepare({ dir, ports }, { runner, program }) {
    const store = makeDir(join(dir, 'data'))
    const args = ['-js', '-sd', store, '-a', '127.0.0.1', '-p', String(ports.main)]
    return runner.wrap({ command: program, args, cwd: store })
  },

  probe: probeNats,
}

/**
 * Builds the newer server with Go, once.
 * @param {import('./types.mjs').Options} options
 */
async function build(options) {
  const dir = downloads(`nats-${NEXT_VERSION}`)
  const program = join(dir, 'nats-server')
  if (isExecutable(program)) return program
  const go = which('go')
  if (!go) {
    const cure = 'install Go 1.26, or set LONGSHORE_NATS_NEXT_URL'
    throw new BrokerError('BROKER_UNAVAILABLE', `no Go to build NATS ${NEXT_VERSION} with; ${cure}`)
  }
  await withDownloadLock(`nats-${NEXT_VERSION}`, options, async () => {
    if (isExecutable(program)) return
    options.log?.(`building NATS ${NEXT_VERSION} with Go (about a minute, once)`)
    const building = `${dir}.tmp`
    rmSync(building, { recursive: true, force: true })
    mkdirSync(building, { recursive: true })
    await run(
      { command: go, args: ['install', MODULE], env: { GOBIN: building, GOFLAGS: '' } },
      {
        what: `go install ${MODULE}`,
        cure: 'it needs Go 1.26 or newer and the Go module proxy',
        ...(options.signal ? { signal: options.signal } : {}),
      },
    )
    rmSync(dir, { recursive: true, force: true })
    renameSync(building, dir)
  })
  return program
}
