import type {
  Bus,
  BusOptions,
  Capabilities,
  ConsumeContext,
  Message,
  SubscribeOptions,
  Subscription,
  TopicLike,
} from '@longshore/core'
import { silentLogger } from '@longshore/core'
import { CheckSkipped } from './expect.js'
import { startMember } from './member.js'
import { openNetwork } from './network.js'
import type { Member, MemberSpec } from './process/protocol.js'
import type { ConformanceTarget, TargetHooks, Tolerances } from './target.js'
import { type UntilOptions, until, within } from './until.js'

/** One time that a handler was called. */
export interface Seen<T> {
  readonly payload: T
  readonly message: Message<T>
  readonly attempt: number
  readonly deliveries: number
  /** Epoch milliseconds when the handler began. */
  readonly at: number
}

export interface Collected<T> {
  readonly subscription: Subscription
  /** In the order in which handlers began. */
  readonly seen: readonly Seen<T>[]
  /** Waits until at least so many handlers began. */
  has(count: number, deadline?: number): Promise<void>
}

/** Connections whose network the check can break. */
export interface Network {
  connect(options?: BusOptions): Promise<Bus>
  sever(): Promise<void>
  /** Until `heal`, messages to the topic are stored but their confirmations get lost. */
  loseConfirms(topic: string): Promise<void>
  /** Until `heal`, messages to the topic get lost on their way. */
  losePublishes(topic: string): Promise<void>
  heal(): Promise<void>
}

/** What a check works with. All that it opens is closed after it. */
export class CheckContext {
  readonly hooks: TargetHooks
  readonly tolerances: Required<Tolerances>
  /** Figures for the report. */
  readonly counts: Record<string, number> = {}
  readonly #cleanups: (() => unknown)[] = []
  readonly #buses: Bus[] = []
  readonly #topics = new Set<string>()
  readonly #groups = new Set<string>()
  #names = 0

  constructor(
    readonly target: ConformanceTarget,
    readonly capabilities: Capabilities,
    /** Part of every name, so that runs can overlap and logs can be searched. */
    readonly runId: string,
    readonly checkId: string,
    /** Aborts at the check's timeout. */
    readonly signal: AbortSignal,
  ) {
    this.hooks = this.#watched(target.hooks ?? {})
    this.tolerances = {
      slowness: 1,
      lateMs: 250,
      heapBytes: 48 * 1024 * 1024,
      heartbeatMs: 30_000,
      largestBody: 64 * 1024 * 1024,
      ...target.tolerances,
    }
  }

  /** What a check stops is started again after it, whatever becomes of the check. */
  #watched(hooks: TargetHooks): TargetHooks {
    const { stopBroker, startBroker } = hooks
    if (!stopBroker || !startBroker) return hooks
    let stopped = false
    const start = async () => {
      await startBroker.call(hooks)
      stopped = false
    }
    this.#cleanups.push(() => (stopped ? start() : undefined))
    const stop = async () => {
      stopped = true
      await stopBroker.call(hooks)
    }
    return { ...hooks, stopBroker: stop, startBroker: start }
  }

  /** A new topic name. */
  topic(hint = 't'): string {
    const name = this.#name(hint)
    this.#topics.add(name)
    return name
  }

  /** A new group name. */
  group(hint = 'g'): string {
    const name = this.#name(hint)
    this.#groups.add(name)
    return name
  }

  #name(hint: string): string {
    return `lc.${this.runId}.${this.checkId.replaceAll('.', '-')}.${hint}${++this.#names}`
  }

  /** A new connection, closed after the check. Says nothing to the console. */
  async connect(options: BusOptions = {}): Promise<Bus> {
    return this.adopt(await this.target.connect({ logger: silentLogger, ...options }))
  }

  /** Closes this one too after the check. */
  adopt(bus: Bus): Bus {
    this.#buses.push(bus)
    return bus
  }

  /** Connections through a network that the check may break (hook `proxy`, or the fault hooks). */
  network(): Promise<Network> {
    return openNetwork(this)
  }

  /** A member of a group that can be killed: a process of its own (hook `program`), or a connection (hook `crash`). */
  member(spec: MemberSpec): Promise<Member> {
    return startMember(this, spec)
  }

  /** Runs after the check, last added first, before connections are closed. */
  defer(cleanup: () => unknown): void {
    this.#cleanups.push(cleanup)
  }

  until(
    condition: () => boolean | Promise<boolean>,
    what: UntilOptions['what'],
    deadline = 10_000,
  ): Promise<void> {
    const scaled = deadline * this.tolerances.slowness
    return until(condition, { what, deadline: scaled, signal: this.signal })
  }

  within<T>(promise: Promise<T>, what: string, deadline = 10_000): Promise<T> {
    return within(promise, deadline * this.tolerances.slowness, what)
  }

  /** Ends the check as skipped, because it can't tell here. */
  skip(reason: string): never {
    throw new CheckSkipped(reason)
  }

  count(counts: object): void {
    for (const [name, value] of Object.entries(counts)) {
      if (typeof value === 'number') this.counts[name] = value
    }
  }

  /** Subscribes and keeps what arrives. */
  async collect<T>(
    bus: Bus,
    topic: TopicLike<T>,
    options: SubscribeOptions,
    handler?: (payload: T, context: ConsumeContext<T>) => unknown,
  ): Promise<Collected<T>> {
    const seen: Seen<T>[] = []
    const subscription = await bus.subscribe<T, T>(topic, options, (payload, context) => {
      const { message, attempt, deliveries } = context as ConsumeContext<T>
      seen.push({ payload: payload as T, message, attempt, deliveries, at: Date.now() })
      return handler?.(payload as T, context as ConsumeContext<T>)
    })
    const has = (count: number, deadline?: number) =>
      this.until(
        () => seen.length >= count,
        () => `${count} deliveries; ${seen.length} came`,
        deadline,
      )
    return { subscription, seen, has }
  }

  /** Resolves when all is closed. Never fails: the check's own outcome counts. */
  async close(): Promise<void> {
    const quietly = async (action: () => unknown) => {
      await within(Promise.resolve().then(action), 5000, 'cleaning up').catch(() => {})
    }
    for (const cleanup of this.#cleanups.reverse()) await quietly(cleanup)
    await Promise.all(this.#buses.map((bus) => quietly(() => bus.close({ timeout: 500 }))))
    if (this.capabilities.admin && this.#topics.size > 0) await quietly(() => this.#deleteTopics())
  }

  /** Some brokers don't know which groups belong to a topic, so each is tried. */
  async #deleteTopic({ admin }: Bus, topic: string): Promise<void> {
    for (const group of this.#groups) await admin.deleteGroup(topic, group).catch(() => {})
    await admin.deleteTopic(topic).catch(() => {})
  }

  async #deleteTopics(): Promise<void> {
    const bus = await this.target.connect({ logger: silentLogger, connectTimeout: 2000 })
    try {
      await Promise.all([...this.#topics].map((topic) => this.#deleteTopic(bus, topic)))
    } finally {
      await bus.close({ timeout: 500 })
    }
  }
}
