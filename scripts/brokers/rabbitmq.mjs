import { chmodSync, existsSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { installPackages } from './apt.mjs'
import { installDebianNext, nextRunner } from './debian-next.mjs'
import { BrokerError } from './errors.mjs'
import { makeDir } from './paths.mjs'
import { probeRabbitmq } from './probes.mjs'
import { isExecutable, which } from './run.mjs'
import { systemRunner } from './runner.mjs'

/** Debian's. The one that it puts on PATH switches to another user, who can't write our folder. */
const SERVER = '/usr/lib/rabbitmq/bin/rabbitmq-server'

/** Its own epmd runs in the same process group, so that it is stopped and ended with the server. */
const START = 'epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 & exec "$@"'

/** @type {import('./types.mjs').Definition} */
export const rabbitmq = {
  kind: 'rabbitmq',
  ports: ['main', 'distribution', 'epmd'],
  containerPort: 5672,
  stopSignal: 'SIGTERM',
  startDeadline: 90_000,
  url: (port) => `amqp://guest:guest@127.0.0.1:${port}`,
  packages: async (next) => (next || findServer() ? [] : ['rabbitmq-server']),

  async install({ next, dir, log, signal }) {
    if (next) {
      await installDebianNext({ log, signal })
      return { runner: nextRunner(dir), program: SERVER }
    }
    if (!findServer()) await installPackages(['rabbitmq-server'], { log, signal })
    const program = findServer()
    if (program) return { runner: systemRunner(dir), program }
    throw new BrokerError('BROKER_UNAVAILABLE', 'no rabbitmq-server on PATH; install RabbitMQ')
  },

  async prepare({ dir, ports }, { runner, program }) {
    for (const part of ['data', 'log', 'home']) makeDir(join(dir, part))
    const lines = [
      `listeners.tcp.1 = 127.0.0.1:${ports.main}`,
      'log.console = true',
      'log.console.level = info',
      'disk_free_limit.absolute = 50MB',
    ]
    writeFileSync(join(dir, 'rabbitmq.conf'), `${lines.join('\n')}\n`)
    writeFileSync(join(dir, 'enabled_plugins'), '[].\n')
    const cookie = join(dir, 'home', '.erlang.cookie')
    if (existsSync(cookie)) chmodSync(cookie, 0o400)
    return runner.wrap({
      command: 'sh',
      args: ['-c', START, 'sh', program],
      cwd: runner.dir,
      env: {
        ...nodeEnvironment(runner, ports),
        // Makes the script become the server instead of waiting for it.
        RUNNING_UNDER_SYSTEMD: 'true',
        ERL_EPMD_ADDRESS: '127.0.0.1',
        RABBITMQ_DIST_PORT: String(ports.distribution),
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '-noinput -kernel inet_dist_use_interface {127,0,0,1}',
        RABBITMQ_MNESIA_BASE: `${runner.dir}/data`,
        RABBITMQ_LOG_BASE: `${runner.dir}/log`,
        RABBITMQ_LOGS: '-',
        RABBITMQ_CONFIG_FILE: `${runner.dir}/rabbitmq.conf`,
        RABBITMQ_ENABLED_PLUGINS_FILE: `${runner.dir}/enabled_plugins`,
      },
    })
  },

  probe: probeRabbitmq,

  tool: {
    containerProgram: 'rabbitmqctl',
    native: ({ ports }, { runner, program }, args) =>
      runner.wrap({
        command: join(dirname(program), 'rabbitmqctl'),
        args: [...args],
        cwd: runner.dir,
        env: { LC_ALL: 'C.UTF-8', ...nodeEnvironment(runner, ports) },
      }),
  },
}

/**
 * What server and tool must agree on to find each other.
 * @param {import('./types.mjs').Runner} runner
 * @param {Record<string, number>} ports
 */
function nodeEnvironment(runner, ports) {
  return {
    // The cookie lies there.
    HOME: `${runner.dir}/home`,
    ERL_EPMD_PORT: String(ports.epmd),
    RABBITMQ_NODENAME: 'longshore@localhost',
    RABBITMQ_CONF_ENV_FILE: `${runner.dir}/no-rabbitmq-env.conf`,
  }
}

function findServer() {
  return isExecutable(SERVER) ? SERVER : which('rabbitmq-server')
}
