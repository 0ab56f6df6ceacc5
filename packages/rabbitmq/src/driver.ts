import { type Capabilities, type CircuitStore, ClosedError, type Timer } from '@longshore/core'
import type {
  DeadLetterAccess,
  Driver,
  DriverConfig,
  DriverStatus,
  DriverSubscription,
  OutgoingMessage,
  PublishSettle,
  Sink,
  SubscriptionSpec,
} from '@longshore/core/driver'
import type { ChannelModel } from 'amqplib'
import { RabbitmqAdmin } from './admin.js'
import { QueuedCircuits } from './circuits.js'
import { Link } from './connection.js'
import { QueuedDeadLetters } from './dead-letters.js'
import { Delays, longestDelay } from './delay.js'
import { afterDeletion } from './intake.js'
import type { RabbitmqOptions } from './options.js'
import { Publisher } from './publisher.js'
import type { Settings } from './settings.js'
import { Subscription } from './subscription.js'
import { Topology } from './topology.js'

/** What `bus.native()` gives on RabbitMQ. */
export interface RabbitmqConnection {
  /** amqplib's connections; undefined while they are being restored. Channels that you open on them are yours. */
  readonly publishing: ChannelModel | undefined
  readonly consuming: ChannelModel | undefined
  /**
   * Declares all delay queues, for programs that run without configure permission; and the ways from there to groups that were
   * not made by this driver.
   */
  createDelays(groups?: readonly DelayedGroup[]): Promise<void>
}

export interface DelayedGroup {
  readonly topic: string
  readonly group: string
  /** Default `none`. */
  readonly order?: 'none' | 'key'
  readonly routes?: readonly string[]
}

/** Bindings that others deleted are restored within so many milliseconds: AMQP doesn't tell of them. */
const refreshMs = 15_000

export class RabbitmqDriver implements Driver, RabbitmqConnection {
  readonly name = 'rabbitmq'
  server = 'RabbitMQ'
  capabilities!: Capabilities
  readonly deadLetters: DeadLetterAccess
  readonly circuits: CircuitStore
  readonly admin: RabbitmqAdmin
  readonly #publishLink: Link
  readonly #consumeLink: Link
  readonly #topology: Topology
  readonly #delays: Delays
  readonly #publisher: Publisher
  readonly #subscriptions = new Set<Subscription>()
  #blocked: string | undefined
  #state: DriverStatus['state'] | undefined
  #down: string | undefined
  #closed = false
  #refresh: Timer | undefined

  constructor(
    private readonly config: DriverConfig<RabbitmqOptions>,
    private readonly settings: Settings,
  ) {
    const { clock, logger } = config
    const link = (role: 'publishing' | 'consuming', up: () => void) =>
      new Link(role, settings, clock, logger, {
        up,
        down: (detail) => {
          this.#down = detail
          if (role === 'publishing') this.#setBlocked(undefined)
          this.#report()
        },
        blocked: (reason) => {
          if (role === 'publishing') this.#setBlocked(reason)
          this.#report()
        },
      })
    this.#publishLink = link('publishing', () => this.#up())
    this.#consumeLink = link('consuming', () => this.#up())
    this.#topology = new Topology(this.#consumeLink, settings)
    this.#delays = new Delays(this.#topology, settings)
    this.#publisher = new Publisher({
      link: this.#publishLink,
      topology: this.#topology,
      delays: this.#delays,
      settings,
      clock,
      logger,
      onMissingExchange: (exchange) => this.#missing(exchange),
    })
    const parts = [this.#consumeLink, this.#topology, this.#publisher, settings] as const
    this.deadLetters = new QueuedDeadLetters(...parts)
    this.circuits = new QueuedCircuits(...parts, clock, logger)
    this.admin = new RabbitmqAdmin(this.#topology, settings)
  }

  /** @throws ConnectionError, AccessError */
  async start(): Promise<void> {
    const { connectTimeoutMs } = this.config
    try {
      await Promise.all([
        this.#publishLink.start(connectTimeoutMs),
        this.#consumeLink.start(connectTimeoutMs),
      ])
    } catch (error) {
      await this.close(0)
      throw error
    }
    const properties = this.#consumeLink.model?.connection.serverProperties
    this.server = `${properties?.product ?? 'RabbitMQ'} ${properties?.version ?? ''}`.trim()
    this.capabilities = capabilitiesOf(this.settings)
    await this.#publisher.open()
    this.#refreshLater()
  }

  // --- State ---

  #up(): void {
    // Whatever was declared may have gone with the old connection.
    this.#topology.forget()
    void this.#publisher.open()
    this.#report()
  }

  #setBlocked(reason: string | undefined): void {
    this.#blocked = reason
    this.#publisher.setBlocked(reason !== undefined)
  }

  #report(): void {
    if (this.#closed) return
    const up = this.#publishLink.model !== undefined && this.#consumeLink.model !== undefined
    const state = !up ? 'down' : this.#blocked !== undefined ? 'blocked' : 'up'
    const before = this.#state
    this.#state = state
    // Before the first connection stands there is nobody to tell.
    if (state === before || (before === undefined && state !== 'blocked')) return
    const detail = state === 'down' ? this.#down : state === 'blocked' ? this.#blocked : undefined
    this.config.onStatus(detail === undefined ? { state } : { state, detail })
  }

  /** Deleted behind our back, and with it the bindings of all groups. */
  async #missing(exchange: string): Promise<void> {
    const { clock, logger } = this.config
    logger.warn(`RabbitMQ: the exchange '${exchange}' is missing; it was deleted`)
    this.#topology.forget()
    // If queues were deleted with it, their consumers must hear of that before the queues are made anew: else 3.10 never tells them.
    await new Promise<void>((resolve) => clock.setTimer(resolve, afterDeletion))
    this.#topology.forget()
    const subscriptions = [...this.#subscriptions]
    await Promise.all(subscriptions.map((subscription) => subscription.refresh()))
  }

  #refreshLater(): void {
    this.#refresh = this.config.clock.setTimer(
      () => {
        if (this.#closed) return
        if (this.#consumeLink.model !== undefined) {
          for (const subscription of this.#subscriptions) void subscription.refresh()
        }
        this.#refreshLater()
      },
      refreshMs,
      false,
    )
  }

  // --- The contract ---

  publish(batch: readonly OutgoingMessage[], settle: PublishSettle): void {
    this.#publisher.publish(batch, settle)
  }

  async subscribe(spec: SubscriptionSpec, sink: Sink): Promise<DriverSubscription> {
    if (this.#closed) throw new ClosedError('the connection to RabbitMQ is closed')
    const subscription = new Subscription(
      {
        link: this.#consumeLink,
        topology: this.#topology,
        delays: this.#delays,
        publisher: this.#publisher,
        settings: this.settings,
        clock: this.config.clock,
        onClosed: (closed) => this.#subscriptions.delete(closed),
      },
      spec,
      sink,
    )
    this.#subscriptions.add(subscription)
    try {
      await subscription.join()
    } catch (error) {
      await subscription.close()
      throw error
    }
    return subscription
  }

  async close(timeoutMs: number): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#refresh?.cancel()
    for (const subscription of [...this.#subscriptions]) await subscription.close()
    await this.#publisher.close()
    await Promise.all([this.#publishLink.close(timeoutMs), this.#consumeLink.close(timeoutMs)])
  }

  native(): RabbitmqConnection {
    return this
  }

  get publishing(): ChannelModel | undefined {
    return this.#publishLink.model
  }

  get consuming(): ChannelModel | undefined {
    return this.#consumeLink.model
  }

  createDelays(groups: readonly DelayedGroup[] = []): Promise<void> {
    return this.#delays.createAll(
      groups.map(({ topic, group, order = 'none', routes = undefined }) => ({
        topic,
        group,
        order,
        routes,
      })),
    )
  }
}

const routingOf = { topic: 'wildcard', direct: 'exact', fanout: 'none' } as const

function capabilitiesOf(settings: Settings): Capabilities {
  const { queueType, exchangeType, priorities } = settings
  return {
    groups: true,
    order: 'key',
    durable: true,
    replay: false,
    retry: 'broker',
    orderedRetry: 'process',
    // A direct exchange would have to know the delay in front of the routing key.
    delay: exchangeType === 'direct' ? 0 : longestDelay,
    cancelDelay: false,
    deliveryCount: queueType === 'quorum',
    lease: false,
    maxBytes: settings.maxBytes,
    headerCharset: { names: 'unicode', values: 'unicode' },
    batch: true,
    autoCreate: settings.autoCreate,
    priority: priorities,
    ttl: true,
    dedupe: false,
    deadLetters: true,
    circuits: true,
    admin: true,
    routing: routingOf[exchangeType],
    transactions: false,
    requestReply: false,
  }
}
