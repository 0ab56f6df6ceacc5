import type { Clock, Timer } from '../clock.js'
import { Heap } from '../heap.js'

interface Pending extends Timer {
  readonly due: number
  readonly rank: number
  callback: (() => void) | undefined
}

/**
 * A clock that stands still until it is told to advance. Timers run in the order of their due times, and whatever promises they
 * set going runs before the next one.
 */
export class VirtualClock implements Clock {
  #now: number
  #rank = 0
  readonly #timers = new Heap<Pending>(
    (a, b) => a.due < b.due || (a.due === b.due && a.rank < b.rank),
  )
  readonly random: () => number

  /** Begins at 2026-01-01T00:00:00Z. `random` (for jitter) defaults to always the middle: no jitter. */
  constructor(options: { readonly now?: number; readonly random?: () => number } = {}) {
    this.#now = options.now ?? Date.UTC(2026, 0, 1)
    this.random = options.random ?? (() => 0.5)
  }

  now(): number {
    return this.#now
  }

  setTimer(callback: () => void, ms: number): Timer {
    const timer: Pending = {
      due: this.#now + Math.max(0, ms),
      rank: this.#rank++,
      callback,
      cancel() {
        timer.callback = undefined
      },
    }
    this.#timers.push(timer)
    return timer
  }

  /** Milliseconds until the next timer; undefined if none waits. */
  get next(): number | undefined {
    for (let first = this.#timers.peek(); first !== undefined; first = this.#timers.peek()) {
      if (first.callback !== undefined) return first.due - this.#now
      this.#timers.pop()
    }
    return undefined
  }

  /** Lets time pass: every timer that comes due runs at its time, with all that follows from it. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms
    await settle()
    for (let next = this.next; next !== undefined && this.#now + next <= end; next = this.next) {
      const timer = this.#timers.pop()!
      this.#now = Math.max(this.#now, timer.due)
      const { callback } = timer
      timer.callback = undefined
      callback?.()
      await settle()
    }
    this.#now = end
  }

  /** Advances from timer to timer until the condition holds. False if `limitMs` passed or no timer is left before. */
  async until(condition: () => boolean, limitMs = 24 * 3_600_000): Promise<boolean> {
    const end = this.#now + limitMs
    await settle()
    while (!condition()) {
      const { next } = this
      if (next === undefined || this.#now + next > end) return false
      await this.advance(next)
    }
    return true
  }
}

/** Lets every promise that is ready run, and what that makes ready. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
