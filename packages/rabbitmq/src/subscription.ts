import { type Clock, ConflictError, type Failure, NotFoundError, type Timer } from '@longshore/core'
import type {
  DriverSubscription,
  IncomingDelivery,
  RetryRequest,
  Sink,
  SubscriptionSpec,
} from '@longshore/core/driver'
import type { Link } from './connection.js'
import { type Delays, longestDelay } from './delay.js'
import { Intake } from './intake.js'
import { Members } from './members.js'
import type { Publisher } from './publisher.js'
import type { Settings } from './settings.js'
import type { Topology } from './topology.js'
import { type Delivery, deadCopy, retryCopy } from './wire.js'

export interface SubscriptionDeps {
  readonly link: Link
  readonly topology: Topology
  readonly delays: Delays
  readonly publisher: Publisher
  readonly settings: Settings
  readonly clock: Clock
  onClosed(subscription: Subscription): void
}

/**
 * Unsettled messages of one partition, whatever the window: a quorum queue takes back what a lost consumer held in order only if
 * it was at most 32 (more it keeps in an unsorted Erlang map; tried on 3.10.8 and 4.0.5), and puts it behind what an earlier
 * one left, so that an heir must be able to hold all of that at once.
 */
const partitionPrefetch = 32

/** How often a member looks whether it has more than its share of the partitions, in milliseconds. */
const shareMs = 2000

/** For microtasks: cheaper than queueMicrotask. */
const ready = Promise.resolve()

/**
 * One subscription's place in its group: a consumer for each queue. With key order each partition has a single active
 * consumer, which must keep its place until all that it holds is settled: only the end of the channel, never
 * `basic.cancel`, hands a partition over together with its unsettled messages.
 */
export class Subscription implements DriverSubscription {
  readonly #intakes: readonly Intake[]
  /** Deliveries in the core's hands. */
  #held = 0
  #scheduled = false
  #turn = 0
  #paused = false
  #stopped = false
  #closed = false
  #sharing: Timer | undefined
  /** There with key order. */
  readonly #members: Members | undefined
  /** Cancelling and consuming again, one after another. */
  #flow: Promise<void> = Promise.resolve()
  readonly #ordered: boolean

  constructor(
    private readonly deps: SubscriptionDeps,
    readonly spec: SubscriptionSpec,
    private readonly sink: Sink,
  ) {
    const { link, clock, settings, topology } = deps
    this.#ordered = spec.order === 'key'
    const host = {
      link,
      clock,
      topic: spec.topic,
      autoCreate: settings.autoCreate,
      prefetch: this.#ordered ? partitionPrefetch : Math.min(spec.window, 65_535),
      prepare: () => topology.group(spec),
      wanted: () => this.#ordered || !this.#paused,
      opened: (intake: Intake) => {
        if (!this.#ordered) this.#reconcile()
        else if (this.#paused) this.#yield(intake)
      },
      arrived: () => this.#arrived(),
      revoke: (deliveries: readonly Delivery[], reason: string) => {
        this.#held -= deliveries.length
        sink.revoke(deliveries, reason)
      },
      missing: () => topology.forget(),
      fail: (error: unknown) => sink.fail(error),
    }
    if (this.#ordered) this.#members = new Members(topology.membersOf(spec), link, topology)
    this.#intakes = topology.queuesOf(spec).map((queue) => new Intake(queue, host))
  }

  /** @throws AccessError, ConflictError, NotFoundError */
  async join(): Promise<void> {
    const { topology, settings } = this.deps
    if (settings.autoCreate) await topology.checkOrder(this.spec)
    await Promise.all(this.#intakes.map((intake) => intake.open()))
    if (this.#members === undefined) return
    await this.#members.count()
    this.#shareLater()
  }

  /** To be called now and then: what others deleted is declared again, and consumers that the broker forgot begin anew. */
  async refresh(): Promise<void> {
    if (this.#stopped || this.#paused) return
    const { settings, topology } = this.deps
    try {
      if (settings.autoCreate) {
        await topology.group(this.spec)
        await topology.rebind(this.spec)
      }
      for (const intake of this.#intakes) {
        // Who waits behind another member gets nothing, and rightly so.
        if (!this.#ordered || intake.active) await intake.check(() => topology.ready(intake.queue))
      }
    } catch (error) {
      if (error instanceof ConflictError) this.sink.fail(error)
      else if (error instanceof NotFoundError) this.deps.topology.forget()
    }
  }

  // --- Deliveries ---

  /** Those that came in one packet are passed on together. */
  #arrived(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    void ready.then(this.#pump)
  }

  readonly #pump = (): void => {
    this.#scheduled = false
    if (this.#paused || this.#stopped) return void this.#returnBuffered()
    let room = this.spec.window - this.#held
    // Half of the window is shared, the other half kept for each queue: so a blocked key takes no more than the shared part.
    const kept = Math.floor(this.spec.window / (2 * this.#intakes.length))
    const owed = ({ held }: Intake) => Math.max(0, kept - held.size)
    let reserved = this.#intakes.reduce((sum, intake) => sum + owed(intake), 0)
    const batch: Delivery[] = []
    // Each time another one is first.
    this.#turn = (this.#turn + 1) % this.#intakes.length
    for (let n = 0; n < this.#intakes.length; n++) {
      const intake = this.#intakes[(this.#turn + n) % this.#intakes.length]!
      const { buffer, held, yielding } = intake
      const own = owed(intake)
      const most = yielding ? 0 : Math.max(own, room - (reserved - own))
      const count = Math.min(buffer.length, room, most)
      for (let i = 0; i < count; i++) {
        const delivery = buffer[i]!
        delivery.seen = true
        held.add(delivery)
        batch.push(delivery)
      }
      buffer.splice(0, count)
      room -= count
      reserved += owed(intake) - own
    }
    if (batch.length === 0) return
    this.#held += batch.length
    this.sink.deliver(batch)
  }

  /** With key order they stay at the head of their partition until its channel ends. */
  async #returnBuffered(): Promise<void> {
    if (this.#ordered) return
    await this.#flow
    if (!this.#paused && !this.#stopped) return this.#arrived()
    for (const intake of this.#intakes) {
      for (const delivery of intake.buffer.splice(0)) intake.requeue(delivery)
    }
  }

  // --- Settling ---

  ack(delivery: IncomingDelivery): boolean {
    const { intake } = delivery as Delivery
    if (!intake.ack(delivery as Delivery)) return false
    this.#left(intake)
    return true
  }

  #left(intake: Intake): void {
    this.#held--
    if (intake.held.size === 0) intake.busy = false
    if (intake.held.size === 0 && (intake.yielding || this.#paused)) this.#yield(intake)
    else this.#arrived()
  }

  async retry(incoming: IncomingDelivery, request: RetryRequest): Promise<boolean> {
    const delivery = incoming as Delivery
    if (!delivery.intake.held.has(delivery)) return false
    const { clock, delays, publisher } = this.deps
    const { queue } = delivery.intake
    const copy = retryCopy(delivery, request.attempt, request.firstFailedAt)
    let exchange = ''
    let routingKey = queue
    const delayMs = Math.min(request.delayMs, longestDelay)
    if (delayMs > 0) {
      const to = { kind: 'queue', name: queue } as const
      const begun = clock.now()
      if (!delays.isReady(to, delayMs)) await delays.prepare(to, delayMs)
      const left = Math.max(1, delayMs - (clock.now() - begun))
      ;({ exchange, routingKey } = delays.route(to, left, ''))
    }
    await publisher.send(exchange, routingKey, delivery.raw.content, copy)
    return this.ack(delivery)
  }

  async deadLetter(incoming: IncomingDelivery, failure: Failure): Promise<boolean> {
    const delivery = incoming as Delivery
    if (!delivery.intake.held.has(delivery)) return false
    const { publisher, settings, topology } = this.deps
    const { topic, group } = this.spec
    const queue = settings.names.deadLetters(topic, group)
    try {
      await publisher.send('', queue, delivery.raw.content, deadCopy(delivery, failure))
    } catch (error) {
      // Deleted behind our back: made anew, for the core's next try.
      if (error instanceof NotFoundError) {
        topology.forget()
        await topology.group(this.spec)
      }
      throw error
    }
    return this.ack(delivery)
  }

  async release(deliveries: readonly IncomingDelivery[]): Promise<void> {
    // While a paused consumer isn't cancelled yet they would come right back, and each time the broker counts.
    if (!this.#ordered) await this.#flow
    for (const delivery of deliveries as readonly Delivery[]) {
      const { intake } = delivery
      if (!intake.held.has(delivery)) continue
      if (this.#ordered) intake.putBack(delivery)
      else intake.requeue(delivery)
      this.#left(intake)
    }
  }

  heartbeat(): void {}

  // --- The intake ---

  pause(): void {
    this.#paused = true
    if (!this.#ordered) return this.#reconcile()
    this.#members?.leave()
    for (const intake of this.#intakes) if (intake.held.size === 0) this.#yield(intake)
  }

  resume(): void {
    this.#paused = false
    if (!this.#ordered) return this.#reconcile()
    for (const intake of this.#intakes) intake.reopen()
    this.#arrived()
  }

  /** A paused member is out of the line; one with too many partitions goes to its end. */
  #yield(intake: Intake): void {
    if (this.#ordered && !this.#stopped) void intake.giveUp(!this.#paused)
  }

  /** Cancels or starts the consumer, as it is wanted by then. */
  #reconcile(): void {
    this.#flow = this.#flow.then(async () => {
      const wanted = !this.#paused && !this.#stopped
      for (const intake of this.#intakes) await intake.setConsuming(wanted)
    })
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#sharing?.cancel()
    if (this.#ordered) return
    this.#reconcile()
    await this.#flow
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#stopped = true
    this.#sharing?.cancel()
    this.deps.onClosed(this)
    this.#members?.leave()
    const left = this.#intakes.flatMap(({ held }) => [...held])
    for (const { held } of this.#intakes) held.clear()
    if (left.length > 0) this.sink.revoke(left, 'the subscription closed')
    await Promise.all(this.#intakes.map((intake) => intake.close()))
  }

  // --- Sharing partitions ---

  #shareLater(): void {
    this.#sharing = this.deps.clock.setTimer(
      () => void this.#share().finally(() => this.#stopped || this.#shareLater()),
      shareMs * (0.75 + Math.random() * 0.5),
      false,
    )
  }

  /**
   * RabbitMQ makes the consumer that came first the active one, of every partition. Who has more than its share goes to the end of
   * the line with some of them; so all come to be shared evenly.
   */
  async #share(): Promise<void> {
    if (this.#paused) return
    const members = await this.#members?.count()
    if (members === undefined || this.#paused || this.#stopped) return
    for (const intake of this.#intakes) {
      // Something of it stays in hands, such as a retry that waits: it goes on, and others are chosen.
      if (intake.yielding) intake.busy = true
      intake.yielding = false
    }
    this.#arrived()
    const share = Math.ceil(this.#intakes.length / Math.max(1, members))
    const active = this.#intakes
      .filter((intake) => intake.active && intake.isOpen && !intake.busy)
      .sort((a, b) => a.held.size - b.held.size)
    // The idle ones first: they can go at once.
    for (const intake of active.slice(0, Math.max(0, active.length - share))) {
      intake.yielding = true
      if (intake.held.size === 0) this.#yield(intake)
    }
  }
}
