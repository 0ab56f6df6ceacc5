import { type Clock, ConflictError, type Failure, NotFoundError, type Timer } from '@longshore/core'
import type {
  DriverSubscription,
  IncomingDelivery,
  RetryRequest,
  Sink,
  SubscriptionSpec,
} from '@longshore/core/driver'
import type { Channel, ConsumeMessage } from 'amqplib'
import { Acks } from './acks.js'
import { type Link, watch } from './connection.js'
import type { Delays } from './delay.js'
import { isFinal, isLost, toTyped } from './errors.js'
import type { Publisher } from './publisher.js'
import type { Settings } from './settings.js'
import type { Topology } from './topology.js'
import { Delivery, deadCopy, retryCopy } from './wire.js'

export interface SubscriptionDeps {
  readonly link: Link
  readonly topology: Topology
  readonly delays: Delays
  readonly publisher: Publisher
  readonly settings: Settings
  readonly clock: Clock
  onClosed(subscription: Subscription): void
}

/** Pauses before a lost channel is opened anew, in milliseconds. */
const firstPause = 10
const longestPause = 5000
/** A channel that lived so long was no failure. */
const healthyMs = 2000

/**
 * Unsettled messages of one partition, whatever the window: a quorum queue takes back what a lost consumer held in order only if
 * it was at most 32 (more it keeps in an unsorted Erlang map; tried on 3.10.8 and 4.0.5), and puts it behind what an earlier
 * one left, so that an heir must be able to hold all of that at once.
 */
const partitionPrefetch = 32

/** For microtasks: cheaper than queueMicrotask. */
const ready = Promise.resolve()

/** The channel that a subscription consumes on; another generation after every loss. */
interface Intake {
  readonly channel: Channel
  readonly acks: Acks
  readonly queues: Map<string, string>
}

/**
 * One subscription's place in its group: a channel with a consumer for each queue. The broker takes back all that is
 * unsettled whenever the channel ends, and settling it later does nothing: it belongs to a generation that is gone.
 *
 * With key order each partition has a single active consumer. It must keep the place until all that it holds is settled: only
 * the end of the channel, never `basic.cancel`, hands a partition over together with its unsettled messages.
 */
export class Subscription implements DriverSubscription {
  #intake: Intake | undefined
  /** In the core's hands. */
  readonly #held = new Set<Delivery>()
  /** Delivered by the broker, not yet passed on. */
  readonly #buffer: Delivery[] = []
  #fresh: Delivery[] = []
  #paused = false
  #stopped = false
  #closed = false
  #failures = 0
  #openedAt = 0
  #opening = false
  #pause: Timer | undefined
  /** Cancelling and consuming again, one after another. */
  #flow: Promise<void> = Promise.resolve()
  readonly #ordered: boolean

  constructor(
    private readonly deps: SubscriptionDeps,
    readonly spec: SubscriptionSpec,
    private readonly sink: Sink,
  ) {
    this.#ordered = spec.order === 'key'
  }

  // --- Joining, and coming back ---

  /** @throws AccessError, ConflictError, NotFoundError */
  async join(): Promise<void> {
    const { topology, settings } = this.deps
    for (let failures = 0; ; failures++) {
      try {
        if (settings.autoCreate) await topology.checkOrder(this.spec)
        return await this.#open()
      } catch (error) {
        if (!this.#worthAnotherTry(error, failures)) throw error
        await new Promise<void>((resolve) => {
          this.#pause = this.deps.clock.setTimer(resolve, firstPause * 2 ** Math.min(failures, 8))
        })
      }
    }
  }

  #worthAnotherTry(error: unknown, failures: number): boolean {
    if (this.#closed) return false
    // Somebody may have deleted it while it was declared.
    if (error instanceof NotFoundError && this.deps.settings.autoCreate && failures < 5) return true
    return isLost(error) || !isFinal(error)
  }

  async #open(): Promise<void> {
    const { link, topology } = this.deps
    const window = Math.min(this.spec.window, 65_535)
    const model = await link.whenUp()
    await topology.group(this.spec)
    if (this.#closed || this.#stopped) return
    const queues = topology.queuesOf(this.spec)
    this.#opening = true
    try {
      const channel = await model.createChannel()
      const intake: Intake = { channel, acks: new Acks(channel), queues: new Map() }
      watch(channel, (error) => this.#lost(intake, error))
      if (this.#closed || this.#stopped) return void channel.close().catch(() => {})
      this.#intake = intake
      this.#openedAt = this.deps.clock.now()
      await channel.prefetch(this.#ordered ? partitionPrefetch : window, false)
      for (const queue of queues) await this.#consume(intake, queue)
    } catch (error) {
      this.#intake = undefined
      throw toTyped(error, `consuming from '${queues[0]}'`)
    } finally {
      this.#opening = false
    }
  }

  async #consume(intake: Intake, queue: string): Promise<void> {
    const { consumerTag } = await intake.channel.consume(queue, (message) =>
      this.#incoming(intake, queue, message),
    )
    intake.queues.set(queue, consumerTag)
  }

  /** The channel is gone, and all deliveries with it. */
  #lost(intake: Intake, error: Error | undefined): void {
    if (this.#intake !== intake) return
    this.#intake = undefined
    this.#buffer.length = 0
    this.#fresh = []
    const lost = [...this.#held]
    this.#held.clear()
    if (lost.length > 0) {
      this.sink.revoke(lost, `the channel was lost: ${error?.message ?? 'the connection ended'}`)
    }
    this.#comeBack()
  }

  #comeBack(): void {
    // While it is being opened, whoever opens it hears of the failure.
    if (this.#opening || this.#closed || this.#stopped || (this.#ordered && this.#paused)) return
    const { clock } = this.deps
    if (clock.now() - this.#openedAt > healthyMs) this.#failures = 0
    const pause = Math.min(longestPause, firstPause * 2 ** Math.min(this.#failures++, 10))
    this.#pause?.cancel()
    this.#pause = clock.setTimer(() => void this.#reopen(), pause)
  }

  async #reopen(): Promise<void> {
    if (this.#intake !== undefined || this.#closed || this.#stopped) return
    try {
      await this.#open()
      if (this.#paused && !this.#ordered) this.#reconcile()
    } catch (error) {
      if (this.#closed) return
      if (this.#worthAnotherTry(error, this.#failures)) return this.#comeBack()
      this.sink.fail(error)
    }
  }

  /** The topic's exchange, or the binding to it, may have been deleted: both are declared again. */
  async refresh(): Promise<void> {
    if (this.#closed || this.#stopped || !this.deps.settings.autoCreate) return
    try {
      await this.deps.topology.group(this.spec)
    } catch (error) {
      if (error instanceof ConflictError) this.sink.fail(error)
    }
  }

  // --- Deliveries ---

  #incoming(intake: Intake, queue: string, message: ConsumeMessage | null): void {
    if (message === null) return this.#cancelled(intake)
    if (this.#intake !== intake) return
    intake.acks.opened()
    const delivery = new Delivery(this.spec.topic, queue, message)
    if (!this.#ordered && (this.#paused || this.#stopped)) {
      return intake.acks.requeue(delivery.tag)
    }
    if (this.#paused || this.#stopped || this.#held.size >= this.spec.window) {
      this.#buffer.push(delivery)
      return
    }
    this.#give(delivery)
  }

  /** The queue was deleted, or its leader went: everything is looked at anew. */
  #cancelled(intake: Intake): void {
    if (this.#intake !== intake) return
    this.deps.topology.forget()
    this.#lost(intake, new Error('the queue was deleted'))
    intake.channel.close().catch(() => {})
  }

  /** Those that came in one packet are passed on together. */
  #give(delivery: Delivery): void {
    this.#held.add(delivery)
    this.#fresh.push(delivery)
    if (this.#fresh.length === 1) void ready.then(this.#flush)
  }

  readonly #flush = (): void => {
    if (this.#fresh.length === 0) return
    const batch = this.#fresh
    this.#fresh = []
    this.sink.deliver(batch)
  }

  #pump(): void {
    if (this.#paused || this.#stopped) return
    while (this.#buffer.length > 0 && this.#held.size < this.spec.window) {
      this.#give(this.#buffer.shift()!)
    }
  }

  // --- Settling ---

  #mine(delivery: IncomingDelivery): delivery is Delivery {
    return this.#held.has(delivery as Delivery)
  }

  ack(delivery: IncomingDelivery): boolean {
    if (!this.#mine(delivery) || this.#intake === undefined) return false
    this.#held.delete(delivery)
    this.#intake.acks.ack(delivery.tag)
    this.#settled()
    return true
  }

  #settled(): void {
    if (this.#buffer.length > 0) this.#pump()
    if (this.#paused && this.#ordered) this.#yieldIfIdle()
  }

  async retry(delivery: IncomingDelivery, request: RetryRequest): Promise<boolean> {
    if (!this.#mine(delivery)) return false
    const { clock, delays, publisher } = this.deps
    const { queue, raw } = delivery
    const copy = retryCopy(delivery, request.attempt, request.firstFailedAt)
    let exchange = ''
    let routingKey = queue
    const { delayMs } = request
    if (delayMs > 0) {
      const to = { kind: 'queue', name: queue } as const
      const begun = clock.now()
      if (!delays.isReady(to, delayMs)) await delays.prepare(to, delayMs)
      const left = Math.max(1, delayMs - (clock.now() - begun))
      ;({ exchange, routingKey } = delays.route(to, left, ''))
    }
    await publisher.send(exchange, routingKey, raw.content, copy)
    return this.ack(delivery)
  }

  async deadLetter(delivery: IncomingDelivery, failure: Failure): Promise<boolean> {
    if (!this.#mine(delivery)) return false
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

  release(deliveries: readonly IncomingDelivery[]): void {
    const intake = this.#intake
    for (const delivery of deliveries) {
      if (!this.#mine(delivery) || intake === undefined) continue
      this.#held.delete(delivery)
      if (this.#ordered) this.#buffer.push(delivery)
      else intake.acks.requeue(delivery.tag)
    }
    if (!this.#ordered) return
    // They stay at the head of their partition, with this consumer, until its channel ends.
    this.#buffer.sort((a, b) => a.tag - b.tag)
    this.#settled()
  }

  heartbeat(): void {}

  // --- The intake ---

  pause(): void {
    this.#paused = true
    if (this.#ordered) this.#yieldIfIdle()
    else this.#reconcile()
  }

  resume(): void {
    this.#paused = false
    if (!this.#ordered) this.#reconcile()
    else if (this.#intake === undefined) this.#comeBack()
    else this.#pump()
  }

  /** A paused ordered member gives its partitions to others once nothing of them is in its hands. */
  #yieldIfIdle(): void {
    const intake = this.#intake
    if (this.#held.size > 0 || intake === undefined || this.#stopped) return
    this.#intake = undefined
    this.#buffer.length = 0
    void this.#end(intake)
  }

  /** Cancels or starts the consumers, as it is wanted by then. */
  #reconcile(): void {
    this.#flow = this.#flow.then(async () => {
      const intake = this.#intake
      if (intake === undefined) return
      const wanted = !this.#paused && !this.#stopped
      try {
        if (wanted && intake.queues.size === 0) {
          for (const queue of this.deps.topology.queuesOf(this.spec))
            await this.#consume(intake, queue)
        }
        if (!wanted) {
          for (const [queue, tag] of [...intake.queues]) {
            await intake.channel.cancel(tag)
            intake.queues.delete(queue)
          }
        }
      } catch {
        // The channel ended meanwhile; coming back looks at what is wanted, too.
      }
    })
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#pause?.cancel()
    if (this.#ordered) return
    this.#reconcile()
    await this.#flow
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#stopped = true
    this.#pause?.cancel()
    this.deps.onClosed(this)
    const intake = this.#intake
    this.#intake = undefined
    const left = [...this.#held]
    this.#held.clear()
    if (left.length > 0) this.sink.revoke(left, 'the subscription closed')
    if (intake !== undefined) await this.#end(intake)
  }

  async #end({ acks, channel }: Intake): Promise<void> {
    try {
      acks.flush()
      await channel.close()
    } catch {
      // It is closed already.
    }
  }
}
