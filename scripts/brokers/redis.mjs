import { join } from 'node:path'
import { installPackages } from './apt.mjs'
import { installDebianNext, nextRunner } from './debian-next.mjs'
import { BrokerError } from './errors.mjs'
import { makeDir } from './paths.mjs'
import { probeRedis } from './probes.mjs'
import { which } from './run.mjs'
import { systemRunner } from './runner.mjs'

/** @type {import('./types.mjs').Definition} */
export const redis = {
  kind: 'redis',
  ports: ['main'],
  containerPort: 6379,
  stopSignal: 'SIGTERM',
  startDeadline: 30_000,
  url: (port) => `redis://127.0.0.1:${port}`,
  packages: async (next) => (next || findServer() ? [] : ['redis-server']),

  async install({ next, dir, log, signal }) {
    if (next) {
      await installDebianNext({ log, signal })
      return { runner: nextRunner(dir), program: '/usr/bin/redis-server' }
    }
    if (!findServer()) await installPackages(['redis-server'], { log, signal })
    const program = findServer()
    if (program) return { runner: systemRunner(dir), program }
    throw new BrokerError('BROKER_UNAVAILABLE', 'no redis-server on PATH; install Redis')
  },

  async prepare({ dir, ports }, { runner, program }) {
    makeDir(join(dir, 'data'))
    const options = {
      port: String(ports.main),
      bind: '127.0.0.1',
      appendonly: 'yes',
      save: '',
      // Rewriting the title would wipe the environment, by which we find lost processes.
      'set-proc-title': 'no',
    }
    const args = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value])
    return runner.wrap({ command: program, args, cwd: `${runner.dir}/data` })
  },

  probe: probeRedis,
}

function findServer() {
  return which('redis-server') ?? which('valkey-server')
}
