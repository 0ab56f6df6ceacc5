import type { GroupOptions, GroupStats } from '../admin.js'
import type { Clock, Timer } from '../clock.js'
import type { DeadLetterSelection, Failure, StoredDeadLetter } from '../dead-letter.js'
import type { RetryRequest } from '../driver.js'
import { ConflictError } from '../errors.js'
import { Heap } from '../heap.js'
import type { WireMessage } from '../message.js'
import { routeMatcher } from '../routes.js'
import { Breather } from './breather.js'
import { MemoryDelivery } from './delivery.js'
import type { Member } from './member.js'
import { KeyQueue, PlainQueue, type ReadyQueue } from './queues.js'

interface Waiting {
  readonly delivery: MemoryDelivery
  readonly due: number
  readonly rank: number
}

const ready = Promise.resolve()

/** A dead letter, which keeps its place in the group's order. */
interface Buried extends StoredDeadLetter {
  readonly seq: number
}

/** A group of one topic: its queue, its delayed retries, its dead letters and its members. */
export class MemoryGroup {
  readonly members: Member[] = []
  /** Which routes it gets; undefined: all, also none. */
  readonly takes: ((route: string | undefined) => boolean) | undefined
  readonly #delayed = new Heap<Waiting>(
    (a, b) => a.due - b.due < 0 || (a.due === b.due && a.rank < b.rank),
  )
  #ready: ReadyQueue
  readonly #breather: Breather
  #dead: Buried[] = []
  #nextSeq = 0
  #nextMember = 0
  #scheduled = false
  #wakeAt = Number.POSITIVE_INFINITY
  #wake: Timer | undefined

  constructor(
    readonly topic: string,
    readonly name: string,
    private readonly clock: Clock,
    private order: 'none' | 'key',
    private readonly routes: readonly string[] | undefined,
    private readonly partitions: number,
  ) {
    this.takes = routes === undefined ? undefined : routeMatcher(routes)
    this.#ready = this.#newQueue()
    this.#breather = new Breather(clock)
  }

  #newQueue(): ReadyQueue {
    return this.order === 'key' ? new KeyQueue(this.partitions) : new PlainQueue()
  }

  /** How many messages wait, delayed ones included. */
  get backlog(): number {
    return this.#ready.size + this.#delayed.size
  }

  stats(): Record<keyof GroupStats, number> {
    let inFlight = 0
    for (const member of this.members) inFlight += member.held.length
    const { size: ready } = this.#ready
    return { ready, delayed: this.#delayed.size, inFlight, dead: this.#dead.length }
  }

  add(message: WireMessage, priority: number, expiresAt: number): void {
    this.#ready.push(
      new MemoryDelivery(message, this.#nextSeq++, 1, 1, undefined, priority, expiresAt),
    )
    this.schedule()
  }

  /** @throws ConflictError if these options would make another group */
  checkSame({ order, routes }: GroupOptions): void {
    if (order !== this.order) {
      throw new ConflictError(
        `group '${this.name}' of topic '${this.topic}' exists with order '${this.order}', not '${order}'`,
      )
    }
    this.#checkRoutes(routes)
  }

  #checkRoutes(routes: readonly string[] | undefined): void {
    if (routes?.join() === this.routes?.join()) return
    throw new ConflictError(
      `group '${this.name}' of topic '${this.topic}' exists with ${listed(this.routes)}, not ${listed(routes)}; ask for ` +
        'the same, take another group, or delete this one',
    )
  }

  join(member: Member): void {
    this.#checkRoutes(member.spec.routes)
    if (member.spec.order !== this.order) {
      if (this.members.length > 0) {
        throw new ConflictError(
          `group '${this.name}' of topic '${this.topic}' has members with order '${this.order}'; ` +
            `all members of a group must ask for the same order, not '${member.spec.order}'`,
        )
      }
      this.#changeOrder(member.spec.order)
    }
    this.members.push(member)
    this.schedule()
  }

  #changeOrder(order: 'none' | 'key'): void {
    const waiting = this.#ready.drain()
    this.order = order
    this.#ready = this.#newQueue()
    waiting.sort((a, b) => a.delivery.seq - b.delivery.seq)
    for (const { delivery, heldUntil } of waiting) {
      if (heldUntil > this.clock.now()) this.#delay(delivery, heldUntil)
      else this.#ready.push(delivery)
    }
  }

  leave(member: Member): void {
    const at = this.members.indexOf(member)
    if (at >= 0) this.members.splice(at, 1)
  }

  settled(delivery: MemoryDelivery): void {
    this.#ready.settled(delivery)
    if (this.#ready.size > 0) this.schedule()
  }

  /** Returns unsettled deliveries to their old places. `crashed` is added to their count. */
  putBack(deliveries: readonly MemoryDelivery[], crashed: 0 | 1): void {
    for (const delivery of [...deliveries].sort((a, b) => b.seq - a.seq)) {
      this.#ready.settled(delivery)
      this.#ready.putBack(delivery.again(delivery.deliveries + crashed), 0)
    }
    if (deliveries.length > 0) this.schedule()
  }

  retry(delivery: MemoryDelivery, request: RetryRequest): void {
    const { attempt, firstFailedAt, delayMs } = request
    const due = this.clock.now() + delayMs
    this.#ready.settled(delivery)
    if (request.hold) {
      this.#ready.putBack(delivery.with(attempt, 1, firstFailedAt, delivery.seq), due)
      this.#wakeBy(due)
    } else {
      const next = delivery.with(attempt, 1, firstFailedAt, this.#nextSeq++)
      if (delayMs > 0) this.#delay(next, due)
      else this.#ready.push(next)
    }
    this.schedule()
  }

  #delay(delivery: MemoryDelivery, due: number): void {
    this.#delayed.push({ delivery, due, rank: delivery.seq })
    this.#wakeBy(due)
  }

  bury(delivery: MemoryDelivery, failure: Failure): void {
    this.#dead.push({ message: delivery.message, failure, seq: delivery.seq })
    this.settled(delivery)
  }

  get deadLetters(): readonly StoredDeadLetter[] {
    return this.#dead
  }

  /** Takes the selected dead letters out, oldest first. */
  takeDead(selection: DeadLetterSelection): Buried[] {
    const taken: Buried[] = []
    const kept: Buried[] = []
    const limit = selection.limit ?? Number.POSITIVE_INFINITY
    for (const letter of this.#dead) {
      const wanted =
        taken.length < limit &&
        !selection.signal?.aborted &&
        (selection.ids?.has(letter.message.id) ?? true) &&
        (selection.match?.(letter) ?? true)
      ;(wanted ? taken : kept).push(letter)
    }
    this.#dead = kept
    return taken
  }

  /** Sends the selected dead letters back, each to its old place: before what came later. */
  redrive(selection: DeadLetterSelection): number {
    const taken = this.takeDead(selection)
    for (const { message, seq } of taken) {
      const forever = Number.POSITIVE_INFINITY
      this.#ready.restore(new MemoryDelivery(message, seq, 1, 1, undefined, 0, forever))
    }
    if (taken.length > 0) this.schedule()
    return taken.length
  }

  clear(): void {
    this.#ready.clear()
    this.#delayed.remove(() => true)
    this.#dead = []
    this.#wake?.cancel()
  }

  // --- Dispatch ---

  schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    if (this.#breather.due()) setImmediate(this.#dispatch)
    else void ready.then(this.#dispatch)
  }

  readonly #dispatch = (): void => {
    this.#scheduled = false
    const now = this.clock.now()
    for (let next = this.#delayed.peek(); next && next.due <= now; next = this.#delayed.peek()) {
      this.#delayed.pop()
      this.#ready.push(next.delivery)
    }
    this.#ready.wake(now)
    if (this.#ready.size === 0 || this.members.length === 0) {
      this.#sleep()
      return
    }
    // Each in turn gets one, so that members share evenly.
    let idle = 0
    const members = this.members.length
    while (idle < members && this.#ready.size > 0) {
      const member = this.members[this.#nextMember++ % members]!
      const delivery = member.room > 0 ? this.#takeLive(member, now) : undefined
      if (delivery === undefined) {
        idle++
        continue
      }
      idle = 0
      member.hold(delivery, now)
      member.batch.push(delivery)
    }
    for (const member of [...this.members]) {
      if (member.batch.length === 0) continue
      member.sink.deliver(member.batch.splice(0))
    }
    this.#sleep()
  }

  #takeLive(member: Member, now: number): MemoryDelivery | undefined {
    for (;;) {
      const delivery = this.#ready.take(member)
      if (delivery === undefined || delivery.expiresAt > now) return delivery
      this.#ready.settled(delivery)
    }
  }

  #sleep(): void {
    this.#wakeBy(
      Math.min(this.#delayed.peek()?.due ?? Number.POSITIVE_INFINITY, this.#ready.nextDue()),
    )
  }

  #wakeBy(due: number): void {
    if (due >= this.#wakeAt) return
    this.#wake?.cancel()
    this.#wakeAt = due
    this.#wake = this.clock.setTimer(
      () => {
        this.#wakeAt = Number.POSITIVE_INFINITY
        this.#dispatch()
      },
      due - this.clock.now(),
      false,
    )
  }
}

function listed(routes: readonly string[] | undefined): string {
  return routes === undefined ? 'no routes' : `routes ${routes.join(', ')}`
}
