import { Deque } from '../deque.js'
import { Heap } from '../heap.js'
import type { MemoryDelivery } from './delivery.js'
import type { Member } from './member.js'

/** Where a group's messages wait until a member has room. */
export interface ReadyQueue {
  readonly size: number
  push(delivery: MemoryDelivery): void
  /** Back to its old place. */
  putBack(delivery: MemoryDelivery, heldUntil: number): void
  /** Puts a new delivery of an old message where its number belongs; what is held stays so. */
  restore(delivery: MemoryDelivery): void
  /** Lets go of what was held until now. */
  wake(now: number): void
  /** The next delivery for this member; undefined if there is none for it now. */
  take(member: Member): MemoryDelivery | undefined
  /** To be called when a member let go of a delivery. */
  settled(delivery: MemoryDelivery): void
  /** When the next held lane becomes free; Infinity if none is held. */
  nextDue(): number
  /** Takes everything out, each with the time until which it is held (0: not at all). Nothing may be unsettled. */
  drain(): { readonly delivery: MemoryDelivery; readonly heldUntil: number }[]
  clear(): void
}

/** First in, first out; one queue for each priority in use. */
export class PlainQueue implements ReadyQueue {
  readonly #levels: (Deque<MemoryDelivery> | undefined)[] = [new Deque()]
  size = 0

  #level(priority: number): Deque<MemoryDelivery> {
    let level = this.#levels[priority]
    if (level === undefined) {
      level = new Deque()
      this.#levels[priority] = level
    }
    return level
  }

  push(delivery: MemoryDelivery): void {
    this.#level(delivery.priority).push(delivery)
    this.size++
  }

  restore(delivery: MemoryDelivery): void {
    this.putBack(delivery)
  }

  putBack(delivery: MemoryDelivery): void {
    insert(this.#level(delivery.priority), delivery)
    this.size++
  }

  take(): MemoryDelivery | undefined {
    if (this.size === 0) return undefined
    for (let i = this.#levels.length - 1; i >= 0; i--) {
      const delivery = this.#levels[i]?.shift()
      if (delivery !== undefined) {
        this.size--
        return delivery
      }
    }
    return undefined
  }

  wake(): void {}

  settled(): void {}

  nextDue(): number {
    return Number.POSITIVE_INFINITY
  }

  drain() {
    const all = this.#levels.flatMap((level) => level?.drain() ?? [])
    this.size = 0
    return all.map((delivery) => ({ delivery, heldUntil: 0 }))
  }

  clear(): void {
    for (const level of this.#levels) level?.drain()
    this.size = 0
  }
}

/** The messages of one key, or of one partition of keys. */
class Lane {
  readonly waiting = new Deque<MemoryDelivery>()
  /** Who holds deliveries of it; nobody else gets any until all are settled. */
  owner: Member | undefined
  unsettled = 0
  heldUntil = 0
  /** The queue of lanes that it stands in; an entry elsewhere is stale. */
  place: Deque<Lane> | Heap<Lane> | undefined

  constructor(readonly name: string) {}
}

/**
 * Keeps the order of each key. Without partitions every key is a lane and at most one of its deliveries is out; with
 * partitions a lane holds many keys and its owner gets as many deliveries as its window takes.
 */
export class KeyQueue implements ReadyQueue {
  readonly #lanes = new Map<string, Lane>()
  /** Lanes that any member may take from. */
  readonly #free = new Deque<Lane>()
  /** Lanes that only their owner may take from. */
  readonly #owned = new WeakMap<Member, Deque<Lane>>()
  readonly #held = new Heap<Lane>((a, b) => a.heldUntil < b.heldUntil)
  readonly #partitions: number
  #keyless = 0
  size = 0

  constructor(partitions: number) {
    this.#partitions = partitions
  }

  #laneOf(delivery: MemoryDelivery): Lane {
    delivery.lane ??= this.#nameOf(delivery.message.key)
    let lane = this.#lanes.get(delivery.lane)
    if (lane === undefined) {
      lane = new Lane(delivery.lane)
      this.#lanes.set(lane.name, lane)
    }
    return lane
  }

  #nameOf(key: string | undefined): string {
    if (key === undefined) return `-${++this.#keyless}`
    return this.#partitions > 0 ? `p${hash(key) % this.#partitions}` : `k${key}`
  }

  push(delivery: MemoryDelivery): void {
    const lane = this.#laneOf(delivery)
    lane.waiting.push(delivery)
    this.size++
    this.#place(lane)
  }

  restore(delivery: MemoryDelivery): void {
    const lane = this.#laneOf(delivery)
    insert(lane.waiting, delivery)
    this.size++
    this.#place(lane)
  }

  putBack(delivery: MemoryDelivery, heldUntil: number): void {
    const lane = this.#laneOf(delivery)
    insert(lane.waiting, delivery)
    this.size++
    lane.heldUntil = heldUntil
    lane.place = undefined
    this.#place(lane)
  }

  /** Puts a lane that has something to give where the right member finds it. */
  #place(lane: Lane): void {
    if (lane.place !== undefined || lane.waiting.size === 0) return
    if (this.#partitions === 0 && lane.unsettled > 0) return
    if (lane.heldUntil > 0) {
      this.#held.push(lane)
      lane.place = this.#held
      return
    }
    const queue = lane.owner === undefined ? this.#free : this.#ownedBy(lane.owner)
    queue.push(lane)
    lane.place = queue
  }

  #ownedBy(member: Member): Deque<Lane> {
    let queue = this.#owned.get(member)
    if (queue === undefined) {
      queue = new Deque()
      this.#owned.set(member, queue)
    }
    return queue
  }

  wake(now: number): void {
    for (let lane = this.#held.peek(); lane && lane.heldUntil <= now; lane = this.#held.peek()) {
      this.#held.pop()
      if (lane.place !== this.#held) continue
      lane.heldUntil = 0
      lane.place = undefined
      this.#place(lane)
    }
  }

  take(member: Member): MemoryDelivery | undefined {
    const own = this.#owned.get(member)
    const lane = (own && this.#next(own)) ?? this.#next(this.#free)
    if (lane === undefined) return undefined
    const delivery = lane.waiting.shift()!
    this.size--
    lane.owner = member
    lane.unsettled++
    this.#place(lane)
    return delivery
  }

  #next(queue: Deque<Lane>): Lane | undefined {
    for (let lane = queue.shift(); lane !== undefined; lane = queue.shift()) {
      if (lane.place !== queue) continue
      lane.place = undefined
      return lane
    }
    return undefined
  }

  settled(delivery: MemoryDelivery): void {
    const lane = this.#laneOf(delivery)
    lane.unsettled--
    if (lane.unsettled > 0) return
    lane.owner = undefined
    if (lane.waiting.size === 0) {
      this.#lanes.delete(lane.name)
    } else if (lane.place !== this.#held) {
      lane.place = undefined
      this.#place(lane)
    }
  }

  nextDue(): number {
    return this.#held.peek()?.heldUntil ?? Number.POSITIVE_INFINITY
  }

  drain() {
    const all: { delivery: MemoryDelivery; heldUntil: number }[] = []
    for (const lane of this.#lanes.values()) {
      // Only the head is held.
      let { heldUntil } = lane
      for (const delivery of lane.waiting.drain()) {
        all.push({ delivery, heldUntil })
        heldUntil = 0
      }
      lane.place = undefined
    }
    this.#lanes.clear()
    this.size = 0
    return all
  }

  clear(): void {
    for (const lane of this.#lanes.values()) {
      lane.waiting.drain()
      lane.place = undefined
      if (lane.unsettled === 0) this.#lanes.delete(lane.name)
    }
    this.size = 0
  }
}

/** Before the first that came later; as a rule that is the very first. */
function insert(waiting: Deque<MemoryDelivery>, delivery: MemoryDelivery): void {
  const earlier: MemoryDelivery[] = []
  for (let first = waiting.peek(); first !== undefined && first.seq < delivery.seq; ) {
    earlier.push(waiting.shift()!)
    first = waiting.peek()
  }
  waiting.unshift(delivery)
  for (const each of earlier.reverse()) waiting.unshift(each)
}

/** FNV-1a over UTF-16 units. */
function hash(text: string): number {
  let h = 0x811c9dc5
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193)
  return h >>> 0
}
