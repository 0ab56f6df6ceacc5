// A third party's driver: a client of the relay. It knows `@longshore/core` and nothing else of Longshore.
import { connect as dial } from 'node:net'
import { AccessError, ConnectionError, NotFoundError, RejectedError } from '@longshore/core'
import { pack, pingMs, password as rightPassword, talk, unpack } from './wire.mjs'

/** @typedef {import('@longshore/core/driver').Sink} Sink */
/** @typedef {import('@longshore/core/driver').SubscriptionSpec} SubscriptionSpec */
/** @typedef {import('@longshore/core/driver').IncomingDelivery} IncomingDelivery */
/** @typedef {import('@longshore/core/driver').DriverSubscription} DriverSubscription */
/** @typedef {import('@longshore/core').DeadLetterSelection} DeadLetterSelection */
/** @typedef {import('@longshore/core/driver').DriverConfig<Wrongs>} DriverConfig */
/** @typedef {import('@longshore/core/driver').Driver} Driver */

const retryMs = 50

/**
 * A password in place of the right one, and what a test makes wrong: how long the other end may be silent; whether lost confirmations count as done.
 * @typedef {{ silence?: number, optimist?: boolean, password?: string }} Wrongs
 */

/** @type {import('@longshore/core/driver').DriverModule<Wrongs>} */
export const relay = {
  name: 'relay',
  schemes: ['relay'],
  options: ['silence', 'optimist', 'password'],
  async connect(config) {
    const client = new Client(config)
    await client.firstConnect()
    return client
  },
}

/** @param {any} packed @param {string} [id] of the message that it is about */
function toError(packed, id = '') {
  if (packed.code === 'LONGSHORE_REJECTED') return new RejectedError(packed.message, id)
  if (packed.code === 'LONGSHORE_NOT_FOUND') return new NotFoundError(packed.message)
  return new Error(packed.message)
}

/** @implements {Driver} */
class Client {
  name = 'relay'
  server = 'relay'
  /** @type {any} */
  capabilities
  /** @type {import('node:net').Socket | undefined} */
  #socket
  /** @type {((message: object) => void) | undefined} */
  #send
  #up = false
  #closed = false
  #last = 0
  /** @type {Map<number, { settle: import('@longshore/core/driver').PublishSettle, open: Set<number> }>} */
  #publishes = new Map()
  /** @type {Map<number, { resolve: (value: any) => void, reject: (error: unknown) => void }>} */
  #calls = new Map()
  /** @type {Map<number, Member>} */
  #members = new Map()
  /** @type {(() => void)[]} */
  #waiting = []
  #denied = () => {}
  /** @type {import('@longshore/core').Timer | undefined} */
  #timer
  /** @type {import('@longshore/core').Timer | undefined} */
  #ping

  /** @param {DriverConfig} config */
  constructor(config) {
    this.config = config
    const { hostname, port } = new URL(config.url ?? '')
    this.address = { host: hostname, port: Number(port) }
  }

  /** @returns {Promise<void>} */
  firstConnect() {
    return new Promise((resolve, reject) => {
      const timer = this.config.clock.setTimer(() => {
        this.#closed = true
        this.#socket?.destroy()
        this.#timer?.cancel()
        const { host, port } = this.address
        reject(
          new ConnectionError(
            `no relay at ${host}:${port} within ${this.config.connectTimeoutMs} ms`,
          ),
        )
      }, this.config.connectTimeoutMs)
      this.#waiting.push(() => {
        timer.cancel()
        resolve()
      })
      this.#denied = () => {
        timer.cancel()
        this.#closed = true
        this.#socket?.destroy()
        reject(new AccessError('the relay refused the password'))
      }
      this.#dial()
    })
  }

  #dial() {
    const socket = dial(this.address)
    this.#socket = socket
    const { silence } = this.config.options
    const send = talk(socket, (line) => this.#receive(line), silence)
    socket.on('connect', () => {
      const { password = rightPassword } = this.config.options
      send({ t: 'hello', password, autoCreate: this.config.autoCreate })
    })
    socket.on('close', () => this.#down())
    this.#send = send
    this.#beat()
  }

  #beat() {
    this.#ping?.cancel()
    this.#ping = this.config.clock.setTimer(
      () => {
        if (this.#socket && !this.#socket.connecting) this.#send?.({ t: 'ping' })
        this.#beat()
      },
      pingMs,
      false,
    )
  }

  #down() {
    const wasUp = this.#up
    this.#up = false
    this.#ping?.cancel()
    const error = new ConnectionError('the connection to the relay was lost')
    for (const { settle, open } of this.#publishes.values()) {
      const failure = /** @type {const} */ ({ outcome: 'unknown', error })
      for (const index of open) settle(index, this.config.options.optimist ? undefined : failure)
    }
    this.#publishes.clear()
    for (const { reject } of this.#calls.values()) reject(error)
    this.#calls.clear()
    for (const member of this.#members.values()) member.lose('the connection was lost')
    if (this.#closed) return
    if (wasUp) this.config.onStatus({ state: 'down', detail: error.message })
    this.#timer = this.config.clock.setTimer(() => this.#dial(), retryMs)
  }

  async #welcome() {
    this.#up = true
    try {
      for (const member of this.#members.values()) await member.join()
    } catch {
      this.#socket?.destroy()
      return
    }
    this.config.onStatus({ state: 'up' })
    for (const wake of this.#waiting.splice(0)) wake()
  }

  /** @param {any} line */
  #receive(line) {
    if (line.t === 'welcome') {
      this.capabilities = {
        ...line.capabilities,
        maxBytes: 1024 * 1024,
        cancelDelay: false,
        circuits: false,
        admin: false,
      }
      void this.#welcome()
    } else if (line.t === 'denied') {
      this.#denied()
    } else if (line.t === 'settled') {
      const publish = this.#publishes.get(line.id)
      if (!publish?.open.delete(line.index)) return
      if (publish.open.size === 0) this.#publishes.delete(line.id)
      const failure = line.failure && {
        ...line.failure,
        error: toError(line.failure.error, line.failure.message),
      }
      publish.settle(line.index, failure)
    } else if (line.t === 'result') {
      const call = this.#calls.get(line.id)
      this.#calls.delete(line.id)
      if (line.error) call?.reject(toError(line.error))
      else call?.resolve(line.value)
    } else if (line.t === 'deliver') {
      this.#members.get(line.sub)?.deliver(line.batch)
    } else if (line.t === 'revoke') {
      this.#members.get(line.sub)?.revoke(line.ds, line.reason)
    } else if (line.t === 'fail') {
      this.#members.get(line.sub)?.sink.fail(toError(line.error))
    }
  }

  /** @param {string} method @param {any[]} args @returns {Promise<any>} */
  call(method, ...args) {
    if (!this.#up) return Promise.reject(new ConnectionError('the relay is away'))
    return new Promise((resolve, reject) => {
      const id = ++this.#last
      this.#calls.set(id, { resolve, reject })
      this.#send?.({ t: 'call', id, method, args })
    })
  }

  /** @type {import('@longshore/core/driver').Driver['publish']} */
  publish(batch, settle) {
    if (!this.#up) {
      const error = new ConnectionError('the relay is away')
      batch.forEach((_, i) => {
        settle(i, { outcome: 'unsent', error })
      })
      return
    }
    const id = ++this.#last
    this.#publishes.set(id, { settle, open: new Set(batch.keys()) })
    const packed = batch.map((one) => ({ ...one, message: pack(one.message) }))
    this.#send?.({ t: 'publish', id, batch: packed })
  }

  /** @param {SubscriptionSpec} spec @param {Sink} sink @returns {Promise<DriverSubscription>} */
  async subscribe(spec, sink) {
    const member = new Member(this, ++this.#last, spec, sink)
    if (!this.#up) await new Promise((resolve) => this.#waiting.push(() => resolve(undefined)))
    this.#members.set(member.number, member)
    await member.join()
    return member
  }

  /** @param {Member} member */
  leave(member) {
    this.#members.delete(member.number)
  }

  async close() {
    if (this.#closed) return
    this.#closed = true
    this.#timer?.cancel()
    this.#ping?.cancel()
    const socket = this.#socket
    if (!socket || socket.destroyed) return
    await new Promise((resolve) => {
      socket.once('close', resolve)
      socket.destroy()
    })
  }

  native() {
    return this
  }

  deadLetters = {
    /** @param {string} topic @param {string} group */
    browse: (topic, group) => this.#browse(topic, group),
    /** @param {string} topic @param {string} group @param {DeadLetterSelection} selection */
    redrive: async (topic, group, selection) =>
      this.call('redrive', topic, group, await this.#idsOf(topic, group, selection)),
    /** @param {string} topic @param {string} group @param {DeadLetterSelection} selection */
    discard: async (topic, group, selection) =>
      this.call('discard', topic, group, await this.#idsOf(topic, group, selection)),
  }

  /** @param {string} topic @param {string} group */
  async *#browse(topic, group) {
    for (const { message, failure } of await this.call('browse', topic, group)) {
      yield { message: unpack(message), failure }
    }
  }

  /** @param {string} topic @param {string} group @param {DeadLetterSelection} selection */
  async #idsOf(topic, group, { ids, match, limit = Number.POSITIVE_INFINITY }) {
    /** @type {string[]} */
    const chosen = []
    for await (const letter of this.deadLetters.browse(topic, group)) {
      if (chosen.length >= limit) break
      if (ids && !ids.has(letter.message.id)) continue
      if (!match || match(letter)) chosen.push(letter.message.id)
    }
    return chosen
  }
}

/** @implements {DriverSubscription} */
class Member {
  /** @type {Map<number, IncomingDelivery>} */
  #held = new Map()
  /** @type {WeakMap<IncomingDelivery, number>} */
  #numbers = new WeakMap()
  #stopped = false
  #paused = false

  /** @param {Client} client @param {number} number @param {SubscriptionSpec} spec @param {Sink} sink */
  constructor(client, number, spec, sink) {
    this.client = client
    this.number = number
    this.spec = spec
    this.sink = sink
  }

  async join() {
    const { from } = this.spec
    const packed = from instanceof Date ? { date: from.getTime() } : from
    await this.client.call('subscribe', this.number, { ...this.spec, from: packed })
    if (this.#stopped) await this.client.call('stop', this.number)
    if (this.#paused) await this.client.call('pause', this.number)
  }

  /** @param {any[]} batch */
  deliver(batch) {
    const incoming = batch.map(({ d, message, attempt, deliveries, firstFailedAt }) => {
      const delivery = { message: unpack(message), attempt, deliveries, firstFailedAt }
      this.#held.set(d, delivery)
      this.#numbers.set(delivery, d)
      return delivery
    })
    this.sink.deliver(incoming)
  }

  /** @param {number[]} ds @param {string} reason */
  revoke(ds, reason) {
    const taken = ds.flatMap((d) => this.#held.get(d) ?? [])
    for (const d of ds) this.#held.delete(d)
    if (taken.length > 0) this.sink.revoke(taken, reason)
  }

  /** @param {string} reason */
  lose(reason) {
    this.revoke([...this.#held.keys()], reason)
  }

  /** @param {string} method @param {IncomingDelivery} delivery @param {any[]} more */
  async #settle(method, delivery, ...more) {
    const d = this.#numbers.get(delivery) ?? 0
    if (this.#held.get(d) !== delivery) return false
    try {
      const settled = await this.client.call(method, this.number, d, ...more)
      this.#held.delete(d)
      return settled
    } catch (error) {
      // The connection went meanwhile, and the delivery with it.
      if (this.#held.get(d) !== delivery) return false
      throw error
    }
  }

  /** @param {IncomingDelivery} delivery */
  ack(delivery) {
    return this.#settle('ack', delivery)
  }

  /** @param {IncomingDelivery} delivery @param {import('@longshore/core/driver').RetryRequest} request */
  retry(delivery, request) {
    return this.#settle('retry', delivery, request)
  }

  /** @param {IncomingDelivery} delivery @param {import('@longshore/core').Failure} failure */
  deadLetter(delivery, failure) {
    return this.#settle('deadLetter', delivery, failure)
  }

  /** @param {readonly IncomingDelivery[]} deliveries */
  async release(deliveries) {
    const ds = deliveries
      .flatMap((one) => this.#numbers.get(one) ?? [])
      .filter((d) => this.#held.delete(d))
    await this.client.call('release', this.number, ds)
  }

  heartbeat() {
    this.client.call('heartbeat', this.number).catch(() => {})
  }

  pause() {
    this.#paused = true
    this.client.call('pause', this.number).catch(() => {})
  }

  resume() {
    this.#paused = false
    this.client.call('resume', this.number).catch(() => {})
  }

  async stop() {
    this.#stopped = true
    await this.client.call('stop', this.number).catch(() => {})
  }

  async close() {
    this.client.leave(this)
    await this.client.call('close', this.number).catch(() => {})
    this.lose('the subscription closed')
  }
}
