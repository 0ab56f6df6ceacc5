import type { IncomingDelivery } from '../driver.js'
import type { WireMessage } from '../message.js'
import type { Member } from './member.js'

/** A message in a group's queue and, while `member` is set, in that member's hands. A redelivery is a new object. */
export class MemoryDelivery implements IncomingDelivery {
  /** Who holds it; a delivery whose member has changed is stale. */
  member: Member | undefined = undefined
  /** Its place among what the member holds. */
  slot = -1
  leaseUntil = 0
  /** Set by a key queue: the lane that it belongs to. */
  lane: string | undefined = undefined

  constructor(
    readonly message: WireMessage,
    /** Its place in the group's order. */
    readonly seq: number,
    readonly attempt: number,
    readonly deliveries: number,
    readonly firstFailedAt: number | undefined,
    readonly priority: number,
    readonly expiresAt: number,
  ) {}

  /** The same message for another delivery. */
  again(deliveries: number): MemoryDelivery {
    return this.with(this.attempt, deliveries, this.firstFailedAt, this.seq)
  }

  with(attempt: number, deliveries: number, firstFailedAt: number | undefined, seq: number) {
    const next = new MemoryDelivery(
      this.message,
      seq,
      attempt,
      deliveries,
      firstFailedAt,
      this.priority,
      // Once it was delivered in time, its retries don't expire.
      attempt === 1 && deliveries === 1 ? this.expiresAt : Number.POSITIVE_INFINITY,
    )
    next.lane = this.lane
    return next
  }
}
