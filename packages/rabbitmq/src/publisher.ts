import {
  type Clock,
  ConnectionError,
  type Logger,
  NotFoundError,
  type Timer,
} from '@longshore/core'
import {
  noHeaders,
  type OutgoingMessage,
  type PublishFailure,
  type PublishSettle,
} from '@longshore/core/driver'
import type { ChannelModel, ConfirmChannel, Message, Options } from 'amqplib'
import { closeChannel, type Link, watch } from './connection.js'
import type { Delays, Destination } from './delay.js'
import { isFinal, isLost, textOf } from './errors.js'
import { checkHeaderSize } from './header-size.js'
import {
  delayedTtl,
  expirationOf,
  Loss,
  noteReturn,
  refused,
  unencodable,
  unroutable,
} from './outcomes.js'
import type { Settings } from './settings.js'
import type { Topology } from './topology.js'
import { Unconfirmed, UnconfirmedWindow } from './unconfirmed.js'
import { bufferOf, propertiesOf } from './wire.js'

export interface PublisherDeps {
  readonly link: Link
  readonly topology: Topology
  readonly delays: Delays
  readonly settings: Settings
  readonly clock: Clock
  readonly logger: Logger
  /** A topic's exchange was not there. Resolves when all that this process needs of it is there again, or can't be. */
  onMissingExchange(exchange: string): Promise<void>
}

/** What is known of a topic's exchange in one epoch of the topology. */
class Route {
  epoch = -1
  /** The tag of the first message to it on the present channel. */
  firstTag = 0
  constructor(
    readonly exchange: string,
    /** Why it has no name. */
    readonly misnamed?: unknown,
  ) {}
}

/** Pauses before the channel is opened anew after it failed at once, in milliseconds. */
const longestPause = 2000

/**
 * Confirmed publishing on one channel. Everything that the broker says of a message (confirmed, refused, returned) settles that
 * message alone; when the channel or the connection goes, what is unconfirmed is `unknown`, and the core repeats it.
 */
export class Publisher {
  #channel: ConfirmChannel | undefined
  /** A channel is being opened on this connection. */
  #opening: { readonly model: ChannelModel; readonly done: Promise<void> } | undefined
  #window = new UnconfirmedWindow()
  readonly #routes = new Map<string, Route>()
  /** Batches that wait for topology, in order. */
  readonly #late: (() => Promise<void>)[] = []
  /** What is published before would be confirmed and reach nobody. */
  #restored: Promise<void> = Promise.resolve()
  #blocked = false
  /** Goes on with every confirmation. */
  #progress = 0
  #closed = false
  #timer: Timer | undefined
  #pause: Timer | undefined
  #openedAt = 0
  #failures = 0

  constructor(private readonly deps: PublisherDeps) {}

  /** The connection stands (again). */
  open(): Promise<void> {
    const { model } = this.deps.link
    if (this.#closed || this.#channel !== undefined || model === undefined) return Promise.resolve()
    if (this.#opening?.model !== model) this.#opening = { model, done: this.#open(model) }
    return this.#opening.done
  }

  async #open(model: ChannelModel): Promise<void> {
    const { link, clock, logger } = this.deps
    try {
      const channel = await model.createConfirmChannel()
      if (this.#closed || link.model !== model) return
      for (const route of this.#routes.values()) route.firstTag = 0
      this.#window = new UnconfirmedWindow()
      this.#listen(channel, this.#window)
      this.#channel = channel
      this.#openedAt = clock.now()
    } catch (error) {
      if (this.#closed || link.model !== model) return
      logger.warn(`the publishing channel can't be opened: ${(error as Error).message}`)
      this.#openSoon()
    } finally {
      if (this.#opening?.model === model) this.#opening = undefined
    }
  }

  #openSoon(): void {
    const { clock, link } = this.deps
    if (clock.now() - this.#openedAt > longestPause) this.#failures = 0
    const pause = this.#failures === 0 ? 0 : Math.min(longestPause, 10 * 2 ** this.#failures)
    this.#failures++
    this.#pause?.cancel()
    this.#pause = clock.setTimer(() => {
      if (link.model !== undefined) void this.open()
    }, pause)
  }

  #listen(channel: ConfirmChannel, window: UnconfirmedWindow): void {
    channel.on('ack', ({ deliveryTag, multiple }) => {
      this.#progress++
      window.take(deliveryTag, multiple, this.#confirmed)
    })
    channel.on('nack', ({ deliveryTag, multiple }) => {
      this.#progress++
      window.take(deliveryTag, multiple, refused)
    })
    // It comes before the confirmation.
    channel.on('return', (message: Message) => noteReturn(window, message))
    watch(channel, (error) => this.#lost(channel, window, error))
  }

  setBlocked(blocked: boolean): void {
    this.#blocked = blocked
    this.#progress++
  }

  // --- From the core ---

  publish(batch: readonly OutgoingMessage[], settle: PublishSettle): void {
    if (this.#late.length > 0 || !this.#allReady(batch)) {
      const at = this.deps.clock.now()
      this.#late.push(() => this.#publishLate(batch, settle, at))
      if (this.#late.length === 1) void this.#catchUp()
      return
    }
    this.#publish(batch, settle)
  }

  /** `waited`: milliseconds for which the batch had to wait. */
  #publish(
    batch: readonly OutgoingMessage[],
    settle: PublishSettle,
    waited = 0,
    failures?: ReadonlyMap<OutgoingMessage, PublishFailure>,
  ): void {
    for (let index = 0; index < batch.length; index++) {
      const outgoing = batch[index]!
      const failure = failures?.get(outgoing) ?? this.#publishOne(outgoing, settle, index, waited)
      if (failure !== undefined) settle(index, failure)
    }
    this.#watchTime()
  }

  #routeOf(topic: string): Route {
    let route = this.#routes.get(topic)
    if (route === undefined) {
      try {
        route = new Route(this.deps.settings.names.exchange(topic))
      } catch (error) {
        return new Route('', error)
      }
      this.#routes.set(topic, route)
    }
    return route
  }

  #allReady(batch: readonly OutgoingMessage[]): boolean {
    const { topology, delays } = this.deps
    let topic: string | undefined
    for (const outgoing of batch) {
      const { message, delayMs } = outgoing
      if (message.topic !== topic) {
        topic = message.topic
        if (this.#routeOf(topic).epoch !== topology.epoch) return false
      }
      const to = this.#destinationOf(outgoing)
      if (to !== undefined && !delays.isReady(to, delayMs)) return false
    }
    return true
  }

  /** Where a delayed message comes out. The default exchange hands over to the queue of that name. */
  #destinationOf({ message, delayMs, route }: OutgoingMessage): Destination | undefined {
    if (delayMs === 0) return undefined
    const { exchange } = this.#routeOf(message.topic)
    if (exchange !== '') return { kind: 'exchange', name: exchange }
    try {
      return { kind: 'queue', name: this.deps.settings.routingKey(message, route) }
    } catch {
      // Publishing it will tell.
      return undefined
    }
  }

  async #catchUp(): Promise<void> {
    for (let next = this.#late[0]; next !== undefined; next = this.#late[0]) {
      await next()
      this.#late.shift()
    }
  }

  /** Sees to the topology first; what can't be had settles the messages that need it. */
  async #publishLate(
    batch: readonly OutgoingMessage[],
    settle: PublishSettle,
    at: number,
  ): Promise<void> {
    const failures = new Map<OutgoingMessage, PublishFailure>()
    /** What needs the same fails the same. */
    const known = new Map<string, PublishFailure | undefined>()
    await this.#restored
    for (const outgoing of batch) {
      const { message, delayMs } = outgoing
      const to = this.#destinationOf(outgoing)
      const need = `${message.topic} ${to && `${this.deps.delays.levelOf(delayMs)} ${to.name}`}`
      if (!known.has(need)) known.set(need, await this.#prepare(message.topic, to, delayMs))
      const failure = known.get(need)
      if (failure !== undefined) failures.set(outgoing, failure)
    }
    this.#publish(batch, settle, this.deps.clock.now() - at, failures)
  }

  async #prepare(
    topic: string,
    to: Destination | undefined,
    delayMs: number,
  ): Promise<PublishFailure | undefined> {
    const { topology, delays } = this.deps
    if (this.#channel === undefined) return this.#away()
    try {
      const route = this.#routeOf(topic)
      if (route.misnamed !== undefined) throw route.misnamed
      if (route.epoch !== topology.epoch) {
        const { epoch } = topology
        await topology.topic(topic)
        route.epoch = epoch
      }
      if (to !== undefined && !delays.isReady(to, delayMs)) await delays.prepare(to, delayMs)
      return undefined
    } catch (error) {
      return { outcome: isFinal(error) ? 'rejected' : 'unsent', error }
    }
  }

  #away(): PublishFailure {
    return { outcome: 'unsent', error: new ConnectionError('the connection to RabbitMQ is down') }
  }

  #publishOne(
    outgoing: OutgoingMessage,
    settle: PublishSettle,
    index: number,
    waited: number,
  ): PublishFailure | undefined {
    const { message, delayMs, priority, ttlMs, route } = outgoing
    const { settings, delays } = this.deps
    const target = this.#routeOf(message.topic)
    let { exchange } = target
    try {
      let key = settings.routingKey(message, route)
      const properties = propertiesOf(message)
      if (message.headers !== noHeaders) checkHeaderSize(properties.headers)
      if (settings.mandatory) properties.mandatory = true
      if (priority !== undefined) properties.priority = priority
      if (ttlMs !== undefined) properties.expiration = expirationOf(ttlMs)
      if (delayMs > 0) {
        if (ttlMs !== undefined) throw delayedTtl()
        // So that a delay queue that somebody deleted is noticed.
        properties.mandatory = true
        const left = Math.max(1, delayMs - waited)
        const delayed =
          exchange === ''
            ? delays.route({ kind: 'queue', name: key }, left, '')
            : delays.route({ kind: 'exchange', name: exchange }, left, key)
        ;({ exchange } = delayed)
        key = delayed.routingKey
      }
      return this.#send(exchange, key, bufferOf(message.body), properties, settle, index, target)
    } catch (error) {
      return { outcome: 'rejected', error }
    }
  }

  /** Writes it; a failure is one that came before anything was written. */
  #send(
    exchange: string,
    key: string,
    body: Buffer,
    properties: Options.Publish,
    settle: PublishSettle,
    index: number,
    route?: Route,
  ): PublishFailure | undefined {
    const channel = this.#channel
    if (channel === undefined) return this.#away()
    try {
      channel.publish(exchange, key, body, properties)
    } catch (error) {
      if (!isLost(error)) return { outcome: 'rejected', error: unencodable(error) }
      // It may have ended before anybody listened.
      this.#lost(channel, this.#window, error as Error)
      return this.#away()
    }
    if (route !== undefined && route.firstTag === 0) route.firstTag = this.#window.nextTag
    const id = properties.messageId ?? ''
    this.#window.push(new Unconfirmed(exchange, key, id, body.length, settle, index))
    return undefined
  }

  // --- Copies, for retries, dead letters and redriving ---

  /** Resolves when the broker has confirmed it, and it reached a queue; rejects with a typed error. */
  send(exchange: string, key: string, body: Buffer, properties: Options.Publish): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle: PublishSettle = (_, failure) =>
        failure === undefined ? resolve() : reject(failure.error)
      const failure = this.#send(exchange, key, body, properties, settle, 0)
      if (failure !== undefined) reject(failure.error)
      else this.#watchTime()
    })
  }

  // --- What goes wrong ---

  readonly #confirmed = (item: Unconfirmed): void => {
    if (item.returned === undefined) return item.settle(item.index)
    const { delays, settings } = this.deps
    if (!delays.isOurs(item.exchange)) {
      return item.settle(item.index, { outcome: 'rejected', error: unroutable(item) })
    }
    delays.missing()
    const error = new NotFoundError(
      `the delay queue '${item.exchange}' was deleted; bus.native().createDelays() makes it`,
    )
    item.settle(item.index, { outcome: settings.autoCreate ? 'unsent' : 'rejected', error })
  }

  #lost(channel: ConfirmChannel, window: UnconfirmedWindow, error: Error | undefined): void {
    if (this.#channel === channel) this.#channel = undefined
    const loss = new Loss(error)
    if (loss.missing !== undefined) this.#restored = this.deps.onMissingExchange(loss.missing)
    loss.settle(window, this.#neverTaken(window, loss.forbidden))
    if (this.#closed) return
    if (error !== undefined) {
      this.deps.logger.warn(`RabbitMQ closed the publishing channel: ${textOf(error)}`)
    }
    this.#openSoon()
  }

  /** Whether the broker took no message to this exchange on the channel: the first one to it is still open. */
  #neverTaken(window: UnconfirmedWindow, exchange: string | undefined): boolean {
    if (exchange === undefined) return false
    const oldest = [...window].find((item) => item.exchange === exchange)
    for (const route of this.#routes.values()) {
      if (route.exchange === exchange) return window.tagOf(oldest) === route.firstTag
    }
    return true
  }

  /** When the broker confirms nothing at all for so long, it isn't waited for: the channel is opened anew. */
  #watchTime(): void {
    if (this.#timer !== undefined || this.#window.size === 0) return
    const { clock, settings } = this.deps
    const before = this.#progress
    this.#timer = clock.setTimer(
      () => {
        this.#timer = undefined
        if (this.#progress === before && this.#window.size > 0) this.#stuck()
        this.#watchTime()
      },
      settings.confirmTimeout,
      false,
    )
  }

  #stuck(): void {
    const channel = this.#channel
    // A blocked connection is silent on purpose; the core's deadline still holds.
    if (this.#blocked || channel === undefined) return
    const text = `no confirmation within ${this.deps.settings.confirmTimeout} ms`
    this.#lost(channel, this.#window, new Error(text))
    void closeChannel(channel)
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    this.#pause?.cancel()
    const channel = this.#channel
    this.#channel = undefined
    if (channel !== undefined) await closeChannel(channel)
  }
}
