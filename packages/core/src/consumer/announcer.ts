import type { DeadLetterReason } from '../dead-letter.js'
import type { EventSources } from '../events.js'
import type { Context } from './context.js'

/** Tells what happens in one subscription. Events that nobody listens to aren't built. */
export class Announcer {
  constructor(
    private readonly events: EventSources,
    private readonly driver: string,
    private readonly topic: string,
    private readonly group: string,
  ) {}

  /** Whether somebody wants to know how long handlers take. */
  get timed(): boolean {
    return this.events.handled.active
  }

  #about({ attempt, incoming }: Context) {
    const { driver, topic, group } = this
    return { driver, topic, group, attempt, message: incoming.message }
  }

  started(context: Context): void {
    if (this.events.started.active) this.events.started.emit(this.#about(context))
  }

  handled(context: Context, now: number): void {
    if (!this.events.handled.active) return
    this.events.handled.emit({ ...this.#about(context), durationMs: now - context.startedAt })
  }

  failed(context: Context, error: Error): void {
    if (this.events.failed.active) this.events.failed.emit({ ...this.#about(context), error })
  }

  retried(context: Context, error: Error, delayMs: number): void {
    const { retried } = this.events
    if (retried.active) retried.emit({ ...this.#about(context), error, delayMs })
  }

  buried(context: Context, error: Error, reason: DeadLetterReason, kept: boolean): void {
    const event = kept ? this.events['dead-lettered'] : this.events.discarded
    if (event.active) event.emit({ ...this.#about(context), error, reason })
  }

  revoked(context: Context, reason: string): void {
    if (this.events.revoked.active) this.events.revoked.emit({ ...this.#about(context), reason })
  }

  settleFailed(context: Context, error: Error): void {
    const event = this.events['settle-failed']
    if (event.active) event.emit({ ...this.#about(context), error })
  }

  returned(count: number): void {
    const { driver, topic, group } = this
    if (this.events.returned.active) this.events.returned.emit({ driver, topic, group, count })
  }

  circuit(key: string, state: 'open' | 'half-open' | 'closed'): void {
    const { driver, topic, group } = this
    if (this.events.circuit.active) this.events.circuit.emit({ driver, topic, group, key, state })
  }

  killSwitch(state: 'tripped' | 'resumed', failureRate: number): void {
    const { driver, topic, group } = this
    const event = this.events['kill-switch']
    if (event.active) event.emit({ driver, topic, group, state, failureRate })
  }
}
