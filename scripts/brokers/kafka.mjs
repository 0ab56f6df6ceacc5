import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { installPackages } from './apt.mjs'
import { BrokerError } from './errors.mjs'
import { downloads, makeDir } from './paths.mjs'
import { probeKafka } from './probes.mjs'
import { run, which } from './run.mjs'
import { systemRunner } from './runner.mjs'
import { withDownloadLock } from './state.mjs'

const VERSION = '4.0.2'
const NEXT_VERSION = '4.4.0'
const LOG4J_VERSION = '2.24.3'

/** @type {import('./types.mjs').Definition} */
export const kafka = {
  kind: 'kafka',
  ports: ['main', 'controller'],
  containerPort: 9092,
  stopSignal: 'SIGTERM',
  startDeadline: 60_000,
  url: (port) => `kafka://127.0.0.1:${port}`,
  packages: async () => tools().packages,

  async install({ next, dir, log, signal }) {
    await installPackages(tools().packages, { log, signal })
    const { java } = tools()
    if (!java) throw new BrokerError('BROKER_UNAVAILABLE', 'no java on PATH; install Java 17')
    const version = next ? NEXT_VERSION : VERSION
    await download(version, { log, signal })
    return { runner: systemRunner(dir), program: java, version }
  },

  async prepare({ dir, ports, signal }, { runner, program, version }) {
    for (const part of ['data', 'log']) makeDir(join(dir, part))
    const config = join(dir, 'server.properties')
    writeFileSync(config, properties(serverSettings(dir, ports)))
    const logging = join(dir, 'log4j2.properties')
    writeFileSync(logging, properties(LOG_SETTINGS))
    const java = [
      '-Xms64m',
      '-Xmx512m',
      '-XX:+UseSerialGC',
      `-Dlog4j2.configurationFile=${logging}`,
      '-cp',
      join(downloads(`kafka-${version}`), '*'),
    ]
    if (!existsSync(join(dir, 'data', 'meta.properties'))) {
      const id = randomBytes(16).toString('base64url').replace(/^-/, 'A')
      const format = ['kafka.tools.StorageTool', 'format', '-t', id, '-c', config]
      await run(runner.wrap({ command: program, args: [...java, ...format], cwd: dir }), {
        what: "formatting Kafka's storage",
        cure: `if its data is broken, delete ${join(dir, 'data')}`,
        ...(signal ? { signal } : {}),
      })
    }
    return runner.wrap({ command: program, args: [...java, 'kafka.Kafka', config], cwd: dir })
  },

  probe: probeKafka,
}

/**
 * One node that is broker and controller. `auto.create.topics.enable` keeps its default, true.
 * @param {string} dir
 * @param {Record<string, number>} ports
 */
function serverSettings(dir, ports) {
  return {
    'process.roles': 'broker,controller',
    'node.id': '1',
    'controller.quorum.voters': `1@127.0.0.1:${ports.controller}`,
    listeners: `PLAINTEXT://127.0.0.1:${ports.main},CONTROLLER://127.0.0.1:${ports.controller}`,
    'advertised.listeners': `PLAINTEXT://127.0.0.1:${ports.main}`,
    'controller.listener.names': 'CONTROLLER',
    'listener.security.protocol.map': 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'log.dirs': join(dir, 'data'),
    'num.partitions': '1',
    'offsets.topic.num.partitions': '1',
    'offsets.topic.replication.factor': '1',
    'transaction.state.log.num.partitions': '1',
    'transaction.state.log.replication.factor': '1',
    'transaction.state.log.min.isr': '1',
    'share.coordinator.state.topic.num.partitions': '1',
    'share.coordinator.state.topic.replication.factor': '1',
    'share.coordinator.state.topic.min.isr': '1',
    'group.initial.rebalance.delay.ms': '0',
    // After a crash the controller waits as long before it lets the broker in again.
    'broker.session.timeout.ms': '3000',
    'broker.heartbeat.interval.ms': '500',
  }
}

const LOG_SETTINGS = {
  status: 'warn',
  // Or else the orderly end would go unlogged.
  shutdownHook: 'disable',
  'appender.console.type': 'Console',
  'appender.console.name': 'console',
  'appender.console.layout.type': 'PatternLayout',
  'appender.console.layout.pattern': '%d %p %m (%c{1})%n',
  'rootLogger.level': 'warn',
  'rootLogger.appenderRef.console.ref': 'console',
  'logger.server.name': 'kafka.server',
  'logger.server.level': 'info',
}

/**
 * Java's properties format, which is Latin-1 with backslashes.
 * @param {Record<string, string>} settings
 */
function properties(settings) {
  const lines = Object.entries(settings).map(([name, value]) => {
    const escaped = value
      .replaceAll('\\', '\\\\')
      .replace(/[^ -~]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`)
    return `${name}=${escaped}`
  })
  return `${lines.join('\n')}\n`
}

/** Java, Maven, and the Debian packages for those of them that this system lacks. */
function tools() {
  const java = which('java')
  const maven = which('mvn')
  const packages = [...(java ? [] : ['openjdk-17-jre-headless']), ...(maven ? [] : ['maven'])]
  return { java, maven, packages }
}

/**
 * Brings the server's jars, once.
 * @param {string} version
 * @param {import('./types.mjs').Options} options
 */
async function download(version, options) {
  const dir = downloads(`kafka-${version}`)
  if (existsSync(dir)) return
  const { maven } = tools()
  if (!maven) throw new BrokerError('BROKER_UNAVAILABLE', 'no mvn on PATH; install Maven')
  await withDownloadLock(`kafka-${version}`, options, async () => {
    if (existsSync(dir)) return
    options.log?.(`fetching Kafka ${version} by Maven (40 MB, once)`)
    const building = `${dir}.tmp`
    rmSync(building, { recursive: true, force: true })
    mkdirSync(building, { recursive: true })
    writeFileSync(join(building, 'pom.xml'), pom(version))
    const goal = 'org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies'
    const output = [`-DoutputDirectory=${join(building, 'jars')}`, '-DincludeScope=runtime']
    await run(
      { command: maven, args: ['-B', '-q', goal, ...output], cwd: building },
      {
        what: `fetching Kafka ${version}`,
        cure: 'it needs Maven Central; see the lines below',
        ...(options.signal ? { signal: options.signal } : {}),
      },
    )
    if (readdirSync(join(building, 'jars')).length === 0) {
      throw new BrokerError('BROKER_INSTALL_FAILED', 'Maven brought no jars; run it again')
    }
    renameSync(join(building, 'jars'), dir)
    rmSync(building, { recursive: true, force: true })
  })
}

/** @param {string} version */
function pom(version) {
  const wanted = [
    ['org.apache.kafka', 'kafka_2.13', version],
    ['org.apache.logging.log4j', 'log4j-core', LOG4J_VERSION],
    ['org.apache.logging.log4j', 'log4j-slf4j-impl', LOG4J_VERSION],
  ]
  const dependencies = wanted.map(
    ([group, artifact, number]) =>
      `<dependency><groupId>${group}</groupId><artifactId>${artifact}</artifactId>` +
      `<version>${number}</version></dependency>`,
  )
  return (
    '<project><modelVersion>4.0.0</modelVersion><groupId>longshore</groupId>' +
    '<artifactId>brokers</artifactId><version>1</version>' +
    `<dependencies>${dependencies.join('')}</dependencies></project>\n`
  )
}
