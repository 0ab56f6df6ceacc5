import type { Published, PublishOutcome } from '../api.js'
import type { OutgoingMessage } from '../driver.js'
import type { LongshoreError } from '../errors.js'
import type { WireMessage } from '../message.js'

/** How a message is to be sent, in milliseconds. */
export interface SendOptions {
  readonly delayMs: number
  readonly priority: number | undefined
  readonly ttlMs: number | undefined
  readonly route: string | undefined
  readonly deadlineMs: number
  readonly signal: AbortSignal | undefined
}

/** Told what became of a message; `index` is what it was added with. */
export type Settle = (outcome: PublishOutcome, index: number) => void

/** One message on its way out. */
export class Entry implements OutgoingMessage {
  /** Outside of the buffer, in it, at the driver, or over. */
  place: 'outside' | 'waiting' | 'underway' | 'done' = 'outside'
  /** Its place among those at the driver. */
  slot = -1
  /** The driver once said that it may have been taken. */
  maybeSent = false
  lastError: unknown
  /** Stops listening to the signal. */
  deafen: (() => void) | undefined

  constructor(
    readonly message: WireMessage,
    readonly delayMs: number,
    readonly priority: number | undefined,
    readonly ttlMs: number | undefined,
    readonly route: string | undefined,
    readonly seq: number,
    readonly deadlineAt: number,
    readonly signal: AbortSignal | undefined,
    /** Whoever waits: a promise's two ends, or (without `reject`) one callback for both outcomes. */
    readonly waiter: Settle | ((published: Published) => void),
    readonly reject: ((error: LongshoreError) => void) | undefined,
    readonly index: number,
  ) {}

  /** Whether the broker may have it by now. */
  get mayBeTaken(): boolean {
    return this.maybeSent || this.place === 'underway'
  }

  tell(outcome: PublishOutcome): void {
    if (this.reject === undefined) (this.waiter as Settle)(outcome, this.index)
    else if (outcome.status === 'confirmed') this.#confirm(outcome.id)
    else this.reject(outcome.error)
  }

  #confirm(id: string): void {
    const resolve = this.waiter as (published: Published) => void
    resolve({ id })
  }
}
