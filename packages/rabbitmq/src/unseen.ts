import type { Delivery } from './wire.js'

/** Messages that are remembered; older ones are forgotten. */
const most = 10_000

/**
 * Deliveries that went back before the core saw them: they waited here while the channel was lost, or given up. The broker counts
 * them like those that ended their consumer.
 */
export class Unseen {
  readonly #counts = new Map<string, number>()

  add(deliveries: Iterable<Delivery>): void {
    for (const { seen, message, attempt } of deliveries) {
      if (seen) continue
      const key = `${message.id} ${attempt}`
      const count = this.of(message.id, attempt) + 1
      this.#counts.delete(key)
      this.#counts.set(key, count)
    }
    for (const oldest of this.#counts.keys()) {
      if (this.#counts.size <= most) return
      this.#counts.delete(oldest)
    }
  }

  of(id: string, attempt: number): number {
    return this.#counts.get(`${id} ${attempt}`) ?? 0
  }
}
