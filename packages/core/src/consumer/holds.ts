import type { Clock, Timer } from '../clock.js'
import type { Context } from './context.js'

/** Retries that wait in this process, unsettled, as the broker can't hold them back (capability `orderedRetry`, `retry`). */
export class Holds {
  readonly #waiting = new Map<Context, Timer>()

  constructor(
    private readonly clock: Clock,
    private readonly onDue: (context: Context) => void,
  ) {}

  add(context: Context, dueAt: number): void {
    const timer = this.clock.setTimer(() => {
      this.#waiting.delete(context)
      // Node's timers may fire a millisecond before their time, and a retry is never early.
      if (this.clock.now() < dueAt) this.add(context, dueAt)
      else this.onDue(context)
    }, dueAt - this.clock.now())
    this.#waiting.set(context, timer)
  }

  /** Ends the wait of those that match, without running them; returns them. */
  take(match: (context: Context) => boolean): Context[] {
    const taken = [...this.#waiting.keys()].filter(match)
    for (const context of taken) {
      this.#waiting.get(context)?.cancel()
      this.#waiting.delete(context)
    }
    return taken
  }
}
