import { Deque } from '../deque.js'
import type { Context } from './context.js'

/** Decides which of the waiting deliveries may start. */
export interface Schedule {
  readonly size: number
  add(context: Context): void
  /** The next that may start; it must be given to `done` when it is over. */
  next(): Context | undefined
  done(context: Context): void
  /** In place of `done`: to start again, before all others of its key. */
  again(context: Context): void
  /** Back in front, first to last: they were taken out by `drain`. */
  putBack(contexts: readonly Context[]): void
  /** Takes out all that have not started, in the order in which they came. */
  drain(): Context[]
}

/** In the order of arrival, all at once. */
export class PlainSchedule implements Schedule {
  readonly #waiting = new Deque<Context>()

  get size(): number {
    return this.#waiting.size
  }

  add(context: Context): void {
    this.#waiting.push(context)
  }

  next(): Context | undefined {
    return this.#waiting.shift()
  }

  done(): void {}

  again(context: Context): void {
    this.#waiting.unshift(context)
  }

  putBack(contexts: readonly Context[]): void {
    for (const context of [...contexts].reverse()) this.#waiting.unshift(context)
  }

  drain(): Context[] {
    return this.#waiting.drain()
  }
}

class Lane {
  readonly waiting = new Deque<Context>()
  busy = false
  queued = false

  constructor(readonly key: string) {}
}

/** One lane for each key: at most one of its deliveries is under way, the others wait behind it. */
export class LaneSchedule implements Schedule {
  readonly #lanes = new Map<string, Lane>()
  readonly #ready = new Deque<Lane>()
  readonly #keyless = new PlainSchedule()
  #keylessTurn = false
  #size = 0

  get size(): number {
    return this.#size + this.#keyless.size
  }

  add(context: Context): void {
    const { key } = context
    if (key === undefined) return this.#keyless.add(context)
    const lane = this.#lane(key)
    lane.waiting.push(context)
    this.#size++
    this.#offer(lane)
  }

  putBack(contexts: readonly Context[]): void {
    this.#keyless.putBack(contexts.filter((context) => context.key === undefined))
    for (const context of [...contexts].reverse()) {
      if (context.key === undefined) continue
      const lane = this.#lane(context.key)
      lane.waiting.unshift(context)
      this.#size++
      this.#offer(lane)
    }
  }

  #lane(key: string): Lane {
    let lane = this.#lanes.get(key)
    if (lane === undefined) {
      lane = new Lane(key)
      this.#lanes.set(key, lane)
    }
    return lane
  }

  #offer(lane: Lane): void {
    if (lane.busy || lane.queued || lane.waiting.size === 0) return
    lane.queued = true
    this.#ready.push(lane)
  }

  next(): Context | undefined {
    this.#keylessTurn = !this.#keylessTurn
    if (this.#keylessTurn) return this.#keyless.next() ?? this.#nextKeyed()
    return this.#nextKeyed() ?? this.#keyless.next()
  }

  #nextKeyed(): Context | undefined {
    for (let lane = this.#ready.shift(); lane !== undefined; lane = this.#ready.shift()) {
      lane.queued = false
      const next = this.#shift(lane)
      if (next === undefined) {
        if (!lane.busy && this.#lanes.get(lane.key) === lane) this.#lanes.delete(lane.key)
        continue
      }
      lane.busy = true
      return next
    }
    return undefined
  }

  #shift(lane: Lane): Context | undefined {
    const next = lane.waiting.shift()
    if (next !== undefined) this.#size--
    return next
  }

  done(context: Context): void {
    const { key } = context
    if (key === undefined) return
    const lane = this.#lanes.get(key)
    if (lane === undefined) return
    lane.busy = false
    if (lane.waiting.size === 0) this.#lanes.delete(key)
    else this.#offer(lane)
  }

  again(context: Context): void {
    const { key } = context
    if (key === undefined) return this.#keyless.again(context)
    // The lane is still there: it was busy with this message.
    const lane = this.#lanes.get(key) ?? new Lane(key)
    this.#lanes.set(key, lane)
    lane.busy = false
    lane.waiting.unshift(context)
    this.#size++
    this.#offer(lane)
  }

  drain(): Context[] {
    const all = this.#keyless.drain()
    for (const [key, lane] of this.#lanes) {
      for (let next = this.#shift(lane); next !== undefined; next = this.#shift(lane))
        all.push(next)
      if (!lane.busy) this.#lanes.delete(key)
    }
    return all
  }
}
