import type { Admin } from '../admin.js'
import type { Capabilities } from '../capabilities.js'
import type { CircuitStore } from '../circuits.js'
import type { Clock, Timer } from '../clock.js'
import type { DeadLetterAccess } from '../dead-letter.js'
import type {
  Driver,
  DriverConfig,
  DriverSubscription,
  OutgoingMessage,
  PublishSettle,
  Sink,
  SubscriptionSpec,
} from '../driver.js'
import { ClosedError, ConnectionError, RejectedError } from '../errors.js'
import { Breather } from './breather.js'
import type { MemoryBroker } from './broker.js'
import { Member } from './member.js'
import type { MemoryOptions } from './options.js'

/** What `bus.native()` gives on memory. */
export interface MemoryConnection {
  readonly broker: MemoryBroker
  /** This connection vanishes as if its process had been killed: nothing it does later has an effect. */
  crash(): void
}

/** Keeps the process alive while there are subscriptions, as the socket of a real broker does. */
const anchorMs = 2 ** 31 - 1

/** How long a cut connection stays away. */
const reconnectMs = 5

export class MemoryDriver implements Driver, MemoryConnection {
  readonly name = 'memory'
  readonly server = 'memory'
  readonly capabilities: Capabilities
  readonly members = new Set<Member>()
  readonly clock: Clock
  connected = true
  crashed = false
  #closed = false
  /** Publishes that wait for the process to breathe, in order. */
  readonly #late: (() => void)[] = []
  readonly #breather: Breather
  #anchor: Timer | undefined
  #reconnect: Timer | undefined

  constructor(
    readonly broker: MemoryBroker,
    private readonly config: DriverConfig<MemoryOptions>,
  ) {
    this.clock = config.clock
    this.#breather = new Breather(config.clock)
    this.capabilities = capabilitiesOf(broker.options, config.autoCreate)
    broker.connections.add(this)
  }

  publish(batch: readonly OutgoingMessage[], settle: PublishSettle): void {
    if (this.#late.length > 0 || this.#breather.due()) {
      this.#late.push(() => this.#publish(batch, settle))
      if (this.#late.length === 1) setImmediate(this.#catchUp)
      return
    }
    this.#publish(batch, settle)
  }

  readonly #catchUp = (): void => {
    for (const publish of this.#late.splice(0)) publish()
  }

  #publish(batch: readonly OutgoingMessage[], settle: PublishSettle): void {
    if (this.crashed) return
    const now = this.broker.clock.now()
    for (let i = 0; i < batch.length; i++) this.#publishOne(batch[i]!, i, settle, now)
  }

  #publishOne(outgoing: OutgoingMessage, index: number, settle: PublishSettle, now: number): void {
    if (!this.connected) {
      const error = new ConnectionError('the connection to the memory broker is down')
      return settle(index, { outcome: 'unsent', error })
    }
    const { broker } = this
    const fault = broker.faults.publish?.(outgoing.message)
    if (fault === 'lose') {
      const error = new ConnectionError('the message was made to get lost')
      return settle(index, { outcome: 'unknown', error })
    }
    try {
      const { id } = outgoing.message
      if (fault === 'reject') throw new RejectedError('the broker was made to refuse it', id)
      const topic = broker.topic(outgoing.message.topic, this.config.autoCreate)
      if (topic.backlog >= broker.options.maxBacklog) {
        throw new RejectedError(
          `topic '${topic.name}' has a backlog of ${broker.options.maxBacklog} messages, the memory driver's ` +
            "maxBacklog; raise it, or let the consumers catch up (their 'concurrency')",
          id,
        )
      }
      topic.store(outgoing, now)
    } catch (error) {
      return settle(index, { outcome: 'rejected', error })
    }
    if (fault === 'lose-confirm') {
      const error = new ConnectionError('the confirmation was made to get lost')
      return settle(index, { outcome: 'unknown', error })
    }
    settle(index)
  }

  async subscribe(spec: SubscriptionSpec, sink: Sink): Promise<DriverSubscription> {
    if (this.#closed) throw new ClosedError('the memory connection is closed')
    const member = new Member(this, spec, sink, this.#groupFor(spec))
    member.group.join(member)
    this.members.add(member)
    this.#anchor ??= this.clock.setTimer(() => {}, anchorMs)
    return member
  }

  #groupFor(spec: SubscriptionSpec) {
    const topic = this.broker.topic(spec.topic, this.config.autoCreate)
    const existing = topic.group(spec.group)
    if (existing !== undefined) return existing
    if (!this.config.autoCreate) return this.broker.group(spec.topic, spec.group)
    return topic.createGroup(spec.group, spec)
  }

  /** Its group was deleted: make it anew, or end. */
  rejoin(member: Member): void {
    try {
      member.move(this.#groupFor(member.spec))
    } catch (error) {
      member.sink.fail(error)
    }
  }

  async cancelDelayed(topic: string, id: string): Promise<boolean> {
    return this.broker.topics.get(topic)?.cancel(id) ?? false
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    for (const member of [...this.members]) await member.close()
    this.#end()
  }

  #end(): void {
    this.connected = false
    this.#anchor?.cancel()
    this.#reconnect?.cancel()
    this.broker.connections.delete(this)
  }

  crash(): void {
    if (this.crashed || this.#closed) return
    this.crashed = true
    for (const member of [...this.members]) member.vanish()
    this.#end()
  }

  native(): MemoryConnection {
    return this
  }

  // --- Losing and restoring the connection ---

  lose(detail: string): void {
    this.#reconnect?.cancel()
    if (this.connected) {
      this.connected = false
      this.config.onStatus({ state: 'down', detail })
      for (const member of this.members) member.takeBack([...member.held], detail, false)
    }
    if (this.broker.running) {
      this.#reconnect = this.clock.setTimer(() => this.reconnect(), reconnectMs)
    }
  }

  reconnect(): void {
    this.#reconnect?.cancel()
    if (this.connected || this.crashed || this.#closed) return
    this.connected = true
    this.config.onStatus({ state: 'up' })
    for (const member of this.members) member.group.schedule()
  }

  // --- Abilities ---

  get circuits(): CircuitStore {
    return this.broker.circuits
  }

  readonly deadLetters: DeadLetterAccess = {
    browse: (topic, group) => {
      const { broker } = this
      return (async function* () {
        yield* broker.group(topic, group).deadLetters
      })()
    },
    redrive: async (topic, group, selection) => this.broker.group(topic, group).redrive(selection),
    discard: async (topic, group, selection) =>
      this.broker.group(topic, group).takeDead(selection).length,
  }

  readonly admin: Admin = {
    createTopic: async (topic) => {
      this.broker.topic(topic, true)
    },
    createGroup: async (topic, group, options) => {
      const target = this.broker.topic(topic, true)
      const existing = target.group(group)
      if (existing === undefined) target.createGroup(group, options)
      else existing.checkSame(options)
    },
    deleteTopic: async (topic) => this.broker.deleteTopic(topic),
    deleteGroup: async (topic, group) => this.broker.deleteGroup(topic, group),
    stats: async (topic, group) => this.broker.group(topic, group).stats(),
  }
}

function capabilitiesOf(options: Required<MemoryOptions>, autoCreate: boolean): Capabilities {
  return {
    groups: true,
    order: 'key',
    durable: false,
    replay: options.retain > 0,
    retry: 'broker',
    orderedRetry: options.partitions > 0 ? 'process' : 'broker',
    delay: Number.MAX_SAFE_INTEGER,
    cancelDelay: true,
    deliveryCount: true,
    lease: true,
    maxBytes: options.maxBytes,
    headerCharset: { names: 'unicode', values: 'unicode' },
    batch: true,
    autoCreate,
    priority: 10,
    ttl: true,
    routing: 'wildcard',
    dedupe: options.dedupeWindow > 0,
    deadLetters: true,
    circuits: true,
    admin: true,
    transactions: false,
    requestReply: false,
  }
}
