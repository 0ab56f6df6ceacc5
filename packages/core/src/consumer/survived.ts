import type { Context } from './context.js'

/** Messages whose losses are remembered; older ones are forgotten. */
const most = 10_000

/**
 * Deliveries that were taken from this consumer, or handed back by it, while it lived, by message. A broker that counts deliveries counts those
 * too, but they say nothing against the message: what kills its consumer is never seen here.
 */
export class Survived {
  readonly #counts = new Map<string, number>()

  add({ incoming }: Context): void {
    const { id } = incoming.message
    const count = (this.#counts.get(id) ?? 0) + 1
    this.#counts.delete(id)
    this.#counts.set(id, count)
    if (this.#counts.size <= most) return
    for (const oldest of this.#counts.keys()) {
      this.#counts.delete(oldest)
      return
    }
  }

  /** Deliveries of this message that may have ended a consumer; the present one included. */
  fatal({ incoming }: Context): number {
    return incoming.deliveries - (this.#counts.get(incoming.message.id) ?? 0)
  }
}
