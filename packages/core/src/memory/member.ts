import type { Timer } from '../clock.js'
import type { Failure } from '../dead-letter.js'
import type {
  DriverSubscription,
  IncomingDelivery,
  RetryRequest,
  Sink,
  SubscriptionSpec,
} from '../driver.js'
import { DriverError } from '../errors.js'
import type { MemoryDelivery } from './delivery.js'
import type { MemoryDriver } from './driver.js'
import type { MemoryGroup } from './group.js'

/** One subscription's place in a group. */
export class Member implements DriverSubscription {
  /** What it holds unsettled; each delivery knows its slot. */
  readonly held: MemoryDelivery[] = []
  /** What the running dispatch gathers for it. */
  readonly batch: MemoryDelivery[] = []
  #group: MemoryGroup
  #paused = false
  #stopped = false
  #closed = false
  #leaseTimer: Timer | undefined

  constructor(
    readonly driver: MemoryDriver,
    readonly spec: SubscriptionSpec,
    readonly sink: Sink,
    group: MemoryGroup,
  ) {
    this.#group = group
  }

  get group(): MemoryGroup {
    return this.#group
  }

  get room(): number {
    if (this.#paused || this.#stopped || !this.driver.connected) return 0
    return this.spec.window - this.held.length
  }

  hold(delivery: MemoryDelivery, now: number): void {
    delivery.member = this
    delivery.slot = this.held.length
    delivery.leaseUntil = now + this.spec.leaseMs
    this.held.push(delivery)
    if (this.#leaseTimer === undefined) this.#watchLeases(this.spec.leaseMs)
  }

  /** Takes a delivery out of this member's hands; false if it wasn't in them. */
  letGo(delivery: MemoryDelivery): boolean {
    if (delivery.member !== this) return false
    delivery.member = undefined
    const last = this.held.pop()!
    if (last !== delivery) {
      this.held[delivery.slot] = last
      last.slot = delivery.slot
    }
    return true
  }

  #mine(delivery: IncomingDelivery): delivery is MemoryDelivery {
    return (delivery as MemoryDelivery).member === this && !this.driver.crashed
  }

  #failIfAsked(kind: 'ack' | 'retry' | 'dead-letter', delivery: IncomingDelivery): void {
    if (this.driver.broker.faults.settle?.(kind, delivery.message) === 'fail') {
      throw new DriverError(`the ${kind} of message ${delivery.message.id} was made to fail`)
    }
  }

  ack(delivery: IncomingDelivery): boolean {
    if (!this.#mine(delivery)) return false
    if (this.driver.broker.faults.settle !== undefined) this.#failIfAsked('ack', delivery)
    this.letGo(delivery)
    this.#group.settled(delivery)
    return true
  }

  retry(delivery: IncomingDelivery, request: RetryRequest): boolean {
    if (!this.#mine(delivery)) return false
    this.#failIfAsked('retry', delivery)
    this.letGo(delivery)
    this.#group.retry(delivery, request)
    return true
  }

  deadLetter(delivery: IncomingDelivery, failure: Failure): boolean {
    if (!this.#mine(delivery)) return false
    this.#failIfAsked('dead-letter', delivery)
    this.letGo(delivery)
    this.#group.bury(delivery, failure)
    return true
  }

  release(deliveries: readonly IncomingDelivery[]): void {
    if (this.driver.crashed) return
    const mine = deliveries.filter((d): d is MemoryDelivery => this.#mine(d))
    for (const delivery of mine) this.letGo(delivery)
    this.#group.putBack(mine, 0)
  }

  heartbeat(): void {
    if (this.driver.crashed) return
    const until = this.driver.broker.clock.now() + this.spec.leaseMs
    for (const delivery of this.held) delivery.leaseUntil = until
  }

  #watchLeases(ms: number): void {
    this.#leaseTimer = this.driver.broker.clock.setTimer(
      () => {
        this.#leaseTimer = undefined
        this.#expire()
        if (this.held.length === 0) return
        let next = Number.POSITIVE_INFINITY
        for (const delivery of this.held) next = Math.min(next, delivery.leaseUntil)
        this.#watchLeases(next - this.driver.broker.clock.now())
      },
      ms,
      false,
    )
  }

  #expire(): void {
    const now = this.driver.broker.clock.now()
    const lapsed = this.held.filter((delivery) => delivery.leaseUntil <= now)
    if (lapsed.length === 0) return
    // With key order a lapse takes all: an heir must not get a message while its successors stay here.
    this.takeBack(this.spec.order === 'key' ? [...this.held] : lapsed, 'the lease lapsed', true)
  }

  /**
   * Returns deliveries to the group, and tells the consumer if it can still hear. They count as delivered once more if the
   * consumer itself may be at fault: it crashed, or was silent for too long. A cut connection is nobody's fault.
   */
  takeBack(deliveries: readonly MemoryDelivery[], reason: string, counted: boolean): void {
    if (deliveries.length === 0) return
    for (const delivery of deliveries) this.letGo(delivery)
    if (!this.driver.crashed) this.sink.revoke(deliveries, reason)
    this.#group.putBack(deliveries, counted ? 1 : 0)
  }

  pause(): void {
    this.#paused = true
  }

  resume(): void {
    this.#paused = false
    this.#group.schedule()
  }

  async stop(): Promise<void> {
    this.#stopped = true
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#stopped = true
    this.driver.members.delete(this)
    this.#leaseTimer?.cancel()
    if (this.driver.crashed) return
    this.#group.leave(this)
    this.takeBack([...this.held], 'the subscription closed', false)
  }

  /** The process is gone: what it held goes to others. */
  vanish(): void {
    this.#stopped = true
    this.#leaseTimer?.cancel()
    this.#group.leave(this)
    this.takeBack([...this.held], 'crashed', true)
  }

  /** The group was deleted behind its back and made anew. */
  move(group: MemoryGroup): void {
    const lost = [...this.held]
    for (const delivery of lost) this.letGo(delivery)
    if (lost.length > 0) this.sink.revoke(lost, 'the group was deleted')
    this.#group = group
    group.join(this)
  }
}
