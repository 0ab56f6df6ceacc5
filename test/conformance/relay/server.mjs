// A broker on TCP: each socket gets a connection to one memory broker, which crashes when the socket ends.
import { createServer } from 'node:net'
import { memory, silentLogger, systemClock } from '@longshore/core'
import { pack, password, talk, unpack } from './wire.mjs'

/** @typedef {import('@longshore/core').MemoryConnection} MemoryConnection */
/** @typedef {import('@longshore/core/driver').DriverSubscription} DriverSubscription */
/** @typedef {import('@longshore/core/driver').IncomingDelivery} IncomingDelivery */

/** @param {string} name of the memory broker; `host:port` of what is returned is where it listens */
export async function startRelay(name) {
  /** @type {Set<import('node:net').Socket>} */
  const sockets = new Set()
  let port = 0
  /** @type {import('node:net').Server} */
  let server
  const start = () =>
    new Promise((resolve, reject) => {
      server = createServer((socket) => {
        sockets.add(socket)
        socket.on('close', () => sockets.delete(socket))
        serve(socket, name)
      })
      server.once('error', reject)
      server.listen(port, '127.0.0.1', () => {
        port = /** @type {import('node:net').AddressInfo} */ (server.address()).port
        resolve(undefined)
      })
    })
  const sever = async () => {
    for (const socket of sockets) socket.resetAndDestroy()
  }
  const stop = async () => {
    const closed = new Promise((resolve) => server.close(resolve))
    await sever()
    await closed
  }
  await start()
  return { host: '127.0.0.1', port, start, stop, sever }
}

/** @param {import('node:net').Socket} socket @param {string} name */
function serve(socket, name) {
  /** @type {import('@longshore/core/driver').Driver | undefined} */
  let driver
  /** @type {Map<number, DriverSubscription>} */
  const subscriptions = new Map()
  /** @type {Map<number, IncomingDelivery>} */
  const deliveries = new Map()
  /** @type {WeakMap<IncomingDelivery, number>} */
  const numbers = new WeakMap()
  let last = 0
  const send = talk(socket, (line) => void receive(line))
  socket.on('close', () => {
    // As a broker that loses a client: what it held goes back.
    if (driver) /** @type {MemoryConnection} */ (driver.native()).crash()
  })

  /** @param {number} sub @returns {import('@longshore/core/driver').Sink} */
  const sinkOf = (sub) => ({
    deliver(batch) {
      const packed = batch.map((delivery) => {
        deliveries.set(++last, delivery)
        numbers.set(delivery, last)
        const { attempt, deliveries: count, firstFailedAt, message } = delivery
        return { d: last, attempt, deliveries: count, firstFailedAt, message: pack(message) }
      })
      send({ t: 'deliver', sub, batch: packed })
    },
    revoke(taken, reason) {
      const ds = taken.map((delivery) => numbers.get(delivery))
      send({ t: 'revoke', sub, ds, reason })
    },
    fail: (error) => send({ t: 'fail', sub, error: packError(error) }),
  })

  /** @type {Record<string, (...args: any[]) => unknown>} */
  const calls = {
    async subscribe(sub, spec) {
      const from = typeof spec.from === 'object' ? new Date(spec.from.date) : spec.from
      subscriptions.set(sub, (await driver?.subscribe({ ...spec, from }, sinkOf(sub))) ?? never())
    },
    ack: (sub, d) => settle(sub, d, (member, delivery) => member.ack(delivery)),
    retry: (sub, d, request) =>
      settle(sub, d, (member, delivery) => member.retry(delivery, request)),
    deadLetter: (sub, d, failure) =>
      settle(sub, d, (member, delivery) => member.deadLetter(delivery, failure)),
    release: (sub, ds) =>
      subscriptions
        .get(sub)
        ?.release(ds.map((/** @type {number} */ d) => deliveries.get(d) ?? never())),
    heartbeat: (sub) => subscriptions.get(sub)?.heartbeat(),
    pause: (sub) => subscriptions.get(sub)?.pause(),
    resume: (sub) => subscriptions.get(sub)?.resume(),
    stop: (sub) => subscriptions.get(sub)?.stop(),
    close: (sub) => subscriptions.get(sub)?.close(),
    async browse(topic, group) {
      const letters = []
      for await (const { message, failure } of driver?.deadLetters?.browse(topic, group) ?? []) {
        letters.push({ message: pack(message), failure })
      }
      return letters
    },
    redrive: (topic, group, ids) =>
      driver?.deadLetters?.redrive(topic, group, { ids: new Set(ids) }),
    discard: (topic, group, ids) =>
      driver?.deadLetters?.discard(topic, group, { ids: new Set(ids) }),
    deleteTopic: (topic) => driver?.admin?.deleteTopic(topic),
  }

  /** @param {number} sub @param {number} d @param {(m: DriverSubscription, d: IncomingDelivery) => unknown} how */
  function settle(sub, d, how) {
    const member = subscriptions.get(sub)
    const delivery = deliveries.get(d)
    if (!member || !delivery) return false
    return how(member, delivery)
  }

  /** @param {any} line */
  async function receive(line) {
    if (line.t === 'ping') return send({ t: 'pong' })
    if (line.t === 'hello') {
      if (line.password !== password) {
        send({ t: 'denied' })
        return
      }
      driver = await memory.connect({
        url: undefined,
        options: { name },
        connectTimeoutMs: 1000,
        autoCreate: line.autoCreate,
        clock: systemClock,
        logger: silentLogger,
        onStatus: () => {},
      })
      return send({ t: 'welcome', capabilities: driver.capabilities })
    }
    if (line.t === 'publish') {
      const batch = line.batch.map((/** @type {any} */ one) => ({
        ...one,
        message: unpack(one.message),
      }))
      return driver?.publish(batch, (index, failure) => {
        send({
          t: 'settled',
          id: line.id,
          index,
          failure: failure && {
            outcome: failure.outcome,
            message: batch[index].message.id,
            error: packError(failure.error),
          },
        })
      })
    }
    try {
      send({ t: 'result', id: line.id, value: await calls[line.method]?.(...line.args) })
    } catch (error) {
      send({ t: 'result', id: line.id, error: packError(error) })
    }
  }
}

/** @returns {never} */
function never() {
  throw new Error('the relay lost track')
}

/** @param {any} error */
const packError = (error) => ({ code: error.code, message: error.message })
