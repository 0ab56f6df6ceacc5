// RabbitMQ as a target, on a virtual host of its own that is deleted afterwards. What the kit's connections send goes
// through a proxy, so that all of them can be cut; child processes and the hooks connect directly.
import { randomBytes } from 'node:crypto'
import { TcpProxy } from '@longshore/conformance'
import { connect } from '@longshore/core'
import { driver } from '@longshore/rabbitmq'
import { fillQueue } from './rabbitmq-full.mjs'
import { RabbitmqServer } from './rabbitmq-server.mjs'

/** @typedef {typeof import('../../../../scripts/brokers/index.mjs')} Brokers */
/** @typedef {import('@longshore/conformance').ConformanceTarget} ConformanceTarget */
/** @typedef {import('@longshore/conformance').TargetHooks} TargetHooks */
/** @typedef {import('@longshore/core').BusOptions} BusOptions */

/**
 * @param {string} name of the broker
 * @param {Brokers} brokers
 * @returns {Promise<ConformanceTarget & import('../../../faults/target.js').FaultHooks>}
 */
export async function rabbitmqTarget(name, brokers) {
  const [info] = await brokers.up([name])
  if (!info) throw new Error(`${name} did not come up`)
  const server = await RabbitmqServer.prepare(info, brokers, `conformance-${randomHex()}`)
  const { host, port } = server.address
  const proxy = await TcpProxy.start({ host, port })
  /** @param {string} url @param {BusOptions} [options] */
  const connectTo = (url, options) => connect({ driver, url, ...options })
  const program = new URL('./rabbitmq-program.mjs', import.meta.url)
  program.searchParams.set('broker', server.url())
  return {
    driver: name,
    connect: (options) => connectTo(server.url(proxy), options),
    close: async () => {
      await proxy.close()
      await server.close()
    },
    // Its heartbeats come every 5 s; it gives up after two to three of them.
    tolerances: { heartbeatMs: 20_000, largestBody: 128 * 1024 * 1024 },
    hooks: {
      ...(server.managed ? managed(server) : {}),
      severConnections: async () => proxy.cut(),
      program,
      proxy: {
        host,
        port,
        connect: (host, port, options) => connectTo(server.url({ host, port }), options),
      },
      publishNative: (topic, message) => server.publish(topic, message),
      readNative: (topic) => server.read(topic),
      deleteTopology: (topic, group) => server.deleteTopology(topic, group),
      connectWithBadCredentials: (options) =>
        connectTo(server.url({ host, port, password: 'wrong' }), options),
    },
    ...(server.managed
      ? {
          crashBroker: () => server.restart(true),
          exhaustMemory: () => server.exhaustMemory(),
          countConnections: () => server.countConnections(),
        }
      : {}),
  }
}

/**
 * What only an administrator of the server can do.
 * @param {RabbitmqServer} server
 * @returns {TargetHooks}
 */
function managed(server) {
  return {
    restart: () => server.restart(false),
    stopBroker: () => server.stop(),
    startBroker: () => server.start(),
    breakDeadLetters: (topic, group) => fillQueue(server, `${topic}..${group}..dead`),
    // The delay queues are everybody's.
    breakRetries: () => server.forbidWriting('longshore\\.\\.delay\\.\\.[0-9]+ms'),
    rejectPublishes: (topic) => server.rejectPublishes(topic),
  }
}

function randomHex() {
  return randomBytes(4).toString('hex')
}
