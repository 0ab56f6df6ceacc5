import type { DeadLetterReason } from '@longshore/core'
import {
  type AirportStats,
  type AlertStats,
  link,
  type Results,
  type RouteStats,
} from './results.js'
import type { Alert, Flight } from './topics.js'

/** What the handlers add up, message by message. */
export class Tally implements Results {
  readonly airports = new Map<string, AirportStats>()
  readonly routes = new Map<string, RouteStats>()
  readonly alerts = new Map<string, AlertStats>()
  readonly deadLetters = {
    delays: new Map<string, DeadLetterReason>(),
    routes: new Map<string, DeadLetterReason>(),
  }

  addDelay({ origin, delay, seq }: Flight): void {
    const stats = this.airports.get(origin)
    if (stats === undefined) {
      const chain = link(0, seq)
      this.airports.set(origin, { count: 1, totalDelay: delay, maxDelay: delay, chain })
      return
    }
    stats.count++
    stats.totalDelay += delay
    stats.maxDelay = Math.max(stats.maxDelay, delay)
    stats.chain = link(stats.chain, seq)
  }

  addRoute({ origin, destination, delay, distance }: Flight): void {
    const name = `${origin}-${destination}`
    const stats = this.routes.get(name)
    if (stats === undefined) {
      this.routes.set(name, { count: 1, totalDelay: delay, distance })
      return
    }
    stats.count++
    stats.totalDelay += delay
    stats.distance += distance
  }

  addAlert({ origin, delay }: Alert): void {
    const stats = this.alerts.get(origin)
    if (stats === undefined) {
      this.alerts.set(origin, { count: 1, worst: delay })
      return
    }
    stats.count++
    stats.worst = Math.max(stats.worst, delay)
  }
}

/** The numbers that a group has handled: brokers deliver at least once, so a repeat must change nothing. */
export class Seen {
  readonly #numbers = new Set<number>()
  duplicates = 0

  get size(): number {
    return this.#numbers.size
  }

  /** True the first time. */
  first(seq: number): boolean {
    if (this.#numbers.has(seq)) {
      this.duplicates++
      return false
    }
    this.#numbers.add(seq)
    return true
  }
}
