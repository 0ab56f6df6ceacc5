import type { Admin } from './admin.js'
import type {
  BatchEntry,
  BatchHandler,
  Bus,
  Circuits,
  CloseOptions,
  CloseReport,
  ConsumeOptions,
  Consumption as ConsumptionApi,
  DeadLetters as DeadLettersApi,
  Handler,
  Health,
  Published,
  PublishOptions,
  PublishOutcome,
  SubscribeBatchOptions,
  SubscribeOptions,
  Subscription,
} from './api.js'
import type { Capabilities } from './capabilities.js'
import { checkedAdmin } from './checked-admin.js'
import { type Clock, within } from './clock.js'
import type { BusOptions } from './connect-types.js'
import { Batches } from './consumer/batches.js'
import { closeTimeout } from './consumer/close-options.js'
import { Consumer, type ConsumerDeps } from './consumer/consumer.js'
import { Consumption } from './consumer/consumption.js'
import type { Context } from './consumer/context.js'
import { calledFromHandler, closeInHandler } from './consumer/in-handler.js'
import { type Call, resolveSettings, type Settings } from './consumer/settings.js'
import { DeadLetters } from './dead-letters.js'
import type { Driver, DriverStatus } from './driver.js'
import { ClosedError, OptionError, show, toError } from './errors.js'
import type { BusEvents, EventSources } from './events.js'
import type { Logger } from './logger.js'
import { checkName } from './names.js'
import { checkMiddleware, checkOptions } from './options.js'
import { Publisher } from './publish/publisher.js'
import { unsupported } from './support.js'
import { nameOf, type Topic, type TopicLike, type TopicRef, toTopic } from './topic.js'

/** What a driver is given at least to say goodbye, when handlers have used up the time, in milliseconds. */
const leastGoodbyeMs = 1000

export interface BusParts {
  readonly driver: Driver
  readonly clock: Clock
  readonly logger: Logger
  readonly events: EventSources
  readonly options: BusOptions
  status(): DriverStatus
}

export class LongshoreBus implements Bus {
  readonly #parts: BusParts
  readonly #publisher: Publisher
  readonly #consumers = new Set<Consumer>()
  readonly #consumerDeps: ConsumerDeps
  #admin: Admin | undefined
  #closing: Promise<CloseReport> | undefined

  constructor(parts: BusParts) {
    const { driver, clock, logger, events, options } = parts
    this.#parts = parts
    const { consume = {} } = options
    checkOptions('consume', consume, ['middleware'])
    const { middleware = [] } = consume
    checkMiddleware('consume.middleware', middleware)
    this.#publisher = new Publisher(driver, clock, events, options.publish)
    this.#consumerDeps = {
      driver,
      clock,
      events,
      logger,
      publish: (topic, payload, publishOptions) => this.publish(topic, payload, publishOptions),
      middleware,
      onEnd: (consumer) => this.#consumers.delete(consumer),
    }
  }

  get driver(): string {
    return this.#parts.driver.name
  }

  get server(): string {
    return this.#parts.driver.server
  }

  get capabilities(): Capabilities {
    return this.#parts.driver.capabilities
  }

  get admin(): Admin {
    const { driver } = this.#parts
    if (driver.admin === undefined) {
      throw unsupported(driver, 'admin', 'creating, deleting and counting topics and groups')
    }
    this.#admin ??= checkedAdmin(driver, driver.admin, () => this.#assertOpen())
    return this.#admin
  }

  // --- Publishing ---

  publish<In, Out = In>(
    topic: TopicLike<In, Out>,
    payload: NoInfer<In>,
    options?: PublishOptions,
  ): Promise<Published> {
    try {
      return this.#publisher.publish(toTopic(topic), payload, options)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async publishBatch<In, Out = In>(
    topic: TopicLike<In, Out>,
    entries: readonly BatchEntry<NoInfer<In>>[],
    options?: Pick<PublishOptions, 'deadline' | 'signal'>,
  ): Promise<PublishOutcome[]> {
    return this.#publisher.publishBatch(toTopic(topic), entries, options)
  }

  async cancelDelayed(topic: TopicRef, id: string): Promise<boolean> {
    this.#assertOpen()
    const { driver } = this.#parts
    if (driver.cancelDelayed === undefined || !driver.capabilities.cancelDelay) {
      throw unsupported(driver, 'cancelDelay', 'taking a delayed message back')
    }
    return driver.cancelDelayed(nameOf(topic), id)
  }

  // --- Consuming ---

  async subscribe<In, Out = In>(
    topic: TopicLike<In, Out>,
    options: SubscribeOptions,
    handler: Handler<NoInfer<Out>>,
  ): Promise<Subscription> {
    if (typeof handler !== 'function') throw noHandler('subscribe', topic)
    return this.#consume('subscribe', topic, options, () => handler as never)
  }

  async subscribeBatch<In, Out = In>(
    topic: TopicLike<In, Out>,
    options: SubscribeBatchOptions,
    handler: BatchHandler<NoInfer<Out>>,
  ): Promise<Subscription> {
    if (typeof handler !== 'function') throw noHandler('subscribeBatch', topic)
    let batches: Batches | undefined
    const consumer = await this.#consume('subscribeBatch', topic, options, (settings) => {
      batches = new Batches(handler as BatchHandler<unknown>, settings, this.#parts.clock)
      return batches.add
    })
    consumer.onClosing = () => batches?.close()
    return consumer
  }

  consume<In, Out = In>(topic: TopicLike<In, Out>, options: ConsumeOptions): ConsumptionApi<Out> {
    // Wrong options are told now, not at the first turn of the loop.
    resolveSettings('consume', toTopic(topic).name, options, this.#parts.driver, this.#parts.clock)
    return new Consumption<Out>((handler) =>
      this.#consume('consume', topic, options, () => handler),
    )
  }

  async #consume<In, Out>(
    call: Call,
    topicLike: TopicLike<In, Out>,
    options: SubscribeBatchOptions,
    handlerFor: (settings: Settings) => (payload: unknown, context: Context) => unknown,
  ): Promise<Consumer> {
    this.#assertOpen()
    const { driver, clock } = this.#parts
    const topic = toTopic(topicLike) as unknown as Topic<never, unknown>
    const settings = resolveSettings(call, topic.name, options, driver, clock)
    const consumer = new Consumer(this.#consumerDeps, topic, settings, handlerFor(settings))
    this.#consumers.add(consumer)
    try {
      await consumer.start()
    } catch (error) {
      this.#consumers.delete(consumer)
      throw error
    }
    return consumer
  }

  // --- Dead letters and circuits ---

  deadLetters(topic: TopicRef, group: string): DeadLettersApi {
    this.#assertOpen()
    const { driver, events } = this.#parts
    checkName('group', group)
    if (driver.deadLetters === undefined) {
      throw unsupported(driver, 'deadLetters', 'listing and redriving dead letters')
    }
    const name = nameOf(topic)
    const assertOpen = () => this.#assertOpen()
    return new DeadLetters(driver.deadLetters, name, group, assertOpen, (count) => {
      if (events.redriven.active)
        events.redriven.emit({ driver: driver.name, topic: name, group, count })
    })
  }

  circuits(topic: TopicRef, group: string): Circuits {
    this.#assertOpen()
    const { driver, events } = this.#parts
    checkName('group', group)
    const store = driver.circuits
    if (store === undefined) {
      throw unsupported(
        driver,
        'circuits',
        'keeping circuits; ask the CircuitStore that you gave to subscribe',
      )
    }
    const name = nameOf(topic)
    return {
      list: async () => {
        this.#assertOpen()
        return store.list(name, group)
      },
      close: async (key, options = {}) => {
        this.#assertOpen()
        checkOptions('circuits.close', options, ['redrive'])
        // Asked for in one breath, so that a broker in this process lets nothing of the key slip in between.
        const closing = store.close(name, group, key)
        const redriving = options.redrive && this.deadLetters(topic, group).redrive({ key })
        const [closed] = await Promise.all([closing, redriving])
        if (closed && events.circuit.active) {
          events.circuit.emit({ driver: driver.name, topic: name, group, key, state: 'closed' })
        }
        return closed
      },
    }
  }

  // --- Looking ---

  health(): Health {
    const { driver } = this.#parts
    const { outgoing } = this.#publisher
    const connection: DriverStatus =
      this.#closing === undefined
        ? this.#parts.status()
        : { state: 'down', detail: 'the bus is closed' }
    const subscriptions = [...this.#consumers].map(
      ({ topic, group, state, running, openCircuits }) => ({
        topic,
        group,
        state,
        running,
        openCircuits,
      }),
    )
    const impaired =
      connection.state === 'blocked' ||
      outgoing.saturated ||
      subscriptions.some(({ state }) => state !== 'running' && state !== 'closing')
    return {
      status: connection.state === 'down' ? 'down' : impaired ? 'degraded' : 'up',
      driver: driver.name,
      server: driver.server,
      connection,
      outgoing: {
        messages: outgoing.messages,
        blocked: outgoing.blocked,
        bytes: outgoing.bytes,
        saturated: outgoing.saturated,
      },
      subscriptions,
    }
  }

  on<Name extends keyof BusEvents>(
    event: Name,
    listener: (event: BusEvents[Name]) => void,
  ): () => void {
    const { events } = this.#parts
    if (!Object.hasOwn(events, event))
      throw new OptionError(`there is no event '${event}'; docs/events.md lists them`)
    if (typeof listener !== 'function') {
      throw new OptionError(`on('${event}') needs a listener: a function (event)`)
    }
    return events[event].on(listener)
  }

  native(): unknown {
    return this.#parts.driver.native()
  }

  // --- Closing ---

  async close(options?: CloseOptions): Promise<CloseReport> {
    const timeoutMs = closeTimeout(options)
    if (this.#closing === undefined) {
      const busy = [...this.#consumers].filter((consumer) => consumer.running > 0)
      if (calledFromHandler(busy.map((consumer) => consumer.marker))) throw closeInHandler()
      this.#closing = this.#shutDown(timeoutMs)
    }
    return this.#closing
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #shutDown(timeoutMs: number): Promise<CloseReport> {
    const { driver, clock, events, logger } = this.#parts
    const deadline = clock.now() + timeoutMs
    const left = () => Math.max(0, deadline - clock.now())
    if (events.closing.active) events.closing.emit({ driver: driver.name })
    // First the consumers, as their handlers may publish; then what is on its way out; last the connection.
    const reports = await Promise.all(
      [...this.#consumers].map((consumer) => consumer.end(timeoutMs)),
    )
    await this.#publisher.outgoing.close(left())
    const goodbyeMs = Math.max(leastGoodbyeMs, left())
    try {
      await within(clock, goodbyeMs, driver.close(goodbyeMs))
    } catch (error) {
      logger.warn(`closing the connection to ${driver.server}: ${toError(error).message}`)
    }
    const abandoned = reports.reduce((sum, report) => sum + report.abandoned, 0)
    const report = { drained: abandoned === 0, abandoned }
    if (events.closed.active) events.closed.emit({ driver: driver.name, ...report })
    return report
  }

  #assertOpen(): void {
    if (this.#closing !== undefined)
      throw new ClosedError('the bus is closed; connect again to use it')
  }
}

function noHandler(call: string, topic: TopicRef): OptionError {
  const name = typeof topic === 'string' ? topic : show(topic?.name)
  return new OptionError(`${call}('${name}') needs a handler: a function (payload, context)`)
}
