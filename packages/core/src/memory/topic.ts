import type { GroupOptions } from '../admin.js'
import type { Clock, Timer } from '../clock.js'
import type { OutgoingMessage } from '../driver.js'
import { Heap } from '../heap.js'
import type { WireMessage } from '../message.js'
import { MemoryGroup } from './group.js'
import type { MemoryOptions } from './options.js'
import { Retained } from './retained.js'

interface Delayed extends OutgoingMessage {
  readonly due: number
  readonly rank: number
}

/** A topic: fans messages out to its groups, keeps delayed ones, and remembers some for groups to come. */
export class MemoryTopic {
  readonly groups = new Map<string, MemoryGroup>()
  readonly taps = new Set<(message: WireMessage) => void>()
  readonly #retained: Retained
  readonly #delayed = new Heap<Delayed>(
    (a, b) => a.due < b.due || (a.due === b.due && a.rank < b.rank),
  )
  #rank = 0
  #wakeAt = Number.POSITIVE_INFINITY
  #wake: Timer | undefined
  readonly #seen = new Map<string, number>()

  constructor(
    readonly name: string,
    private readonly clock: Clock,
    private readonly options: Required<MemoryOptions>,
  ) {
    this.#retained = new Retained(options.retain)
  }

  /** Messages of the fullest group, and those that wait for their time. */
  get backlog(): number {
    let most = 0
    for (const group of this.groups.values()) most = Math.max(most, group.backlog)
    return most + this.#delayed.size
  }

  store(outgoing: OutgoingMessage, now: number): void {
    if (this.options.dedupeWindow > 0 && this.#repeated(outgoing.message.id)) return
    if (outgoing.delayMs > 0) {
      const due = now + outgoing.delayMs
      this.#delayed.push({ ...outgoing, due, rank: this.#rank++ })
      this.#wakeBy(due)
      return
    }
    this.#fanOut(outgoing, now)
  }

  #fanOut({ message, priority = 0, ttlMs, route }: OutgoingMessage, now: number): void {
    const expiresAt = ttlMs === undefined ? Number.POSITIVE_INFINITY : now + ttlMs
    for (const group of this.groups.values()) {
      if (group.takes?.(route) ?? true) group.add(message, priority, expiresAt)
    }
    for (const tap of this.taps) tap(message)
    this.#retained.add(message, route, now)
  }

  #repeated(id: string): boolean {
    const now = this.clock.now()
    for (const [old, at] of this.#seen) {
      if (at > now - this.options.dedupeWindow) break
      this.#seen.delete(old)
    }
    if (this.#seen.has(id)) return true
    this.#seen.set(id, now)
    return false
  }

  group(name: string): MemoryGroup | undefined {
    return this.groups.get(name)
  }

  createGroup(name: string, { order, from, routes }: GroupOptions): MemoryGroup {
    const { partitions } = this.options
    const group = new MemoryGroup(this.name, name, this.clock, order, routes, partitions)
    this.groups.set(name, group)
    if (from !== 'latest') {
      const since = from === 'earliest' ? Number.NEGATIVE_INFINITY : from.getTime()
      for (const { message, route } of this.#retained.since(since)) {
        if (group.takes?.(route) ?? true) group.add(message, 0, Number.POSITIVE_INFINITY)
      }
    }
    return group
  }

  cancel(id: string): boolean {
    return this.#delayed.remove((waiting) => waiting.message.id === id).length > 0
  }

  clear(): void {
    this.#wake?.cancel()
    this.#delayed.remove(() => true)
    for (const group of this.groups.values()) group.clear()
  }

  #wakeBy(due: number): void {
    if (due >= this.#wakeAt) return
    this.#wake?.cancel()
    this.#wakeAt = due
    this.#wake = this.clock.setTimer(() => this.#release(), due - this.clock.now(), false)
  }

  #release(): void {
    this.#wakeAt = Number.POSITIVE_INFINITY
    const now = this.clock.now()
    for (let next = this.#delayed.peek(); next && next.due <= now; next = this.#delayed.peek()) {
      this.#delayed.pop()
      this.#fanOut(next, now)
    }
    const next = this.#delayed.peek()
    if (next !== undefined) this.#wakeBy(next.due)
  }
}
