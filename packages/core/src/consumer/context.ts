import type { Delivery, Publish } from '../api.js'
import type { Clock } from '../clock.js'
import type { DeadLetterReason } from '../dead-letter.js'
import type { IncomingDelivery, RetryRequest } from '../driver.js'
import type { Duration } from '../duration.js'
import { RevokedError } from '../errors.js'
import type { Logger } from '../logger.js'
import type { Message } from '../message.js'

/** Where a delivery stands on its way to being settled, which happens once. */
export type Settlement = 'open' | 'settling' | 'settled' | 'lost'

/** What a context needs of the runtime that it is in. */
export interface ContextHost {
  readonly topic: string
  readonly group: string
  /** Whether it keeps the order of keys. */
  readonly ordered: boolean
  /** Names the functions that its handlers run in. */
  readonly marker: string
  readonly clock: Clock
  readonly logger: Logger
  readonly publish: Publish
  /** Set once a middleware was found to return before its `next` had ended. */
  hasty: boolean
  ack(context: Context): Promise<boolean>
  retry(context: Context, delay: Duration | undefined, error: unknown): Promise<boolean>
  deadLetter(
    context: Context,
    error: unknown,
    reason: DeadLetterReason | undefined,
  ): Promise<boolean>
  attemptFailed(context: Context, thrown: unknown): Promise<boolean>
  /** Gives deliveries back as if they had never been started. They count as settled from this call on. */
  handBack(contexts: readonly Context[]): Promise<void>
}

/** One delivery on its way through the runtime; what handlers and middleware see of it. */
export class Context implements Delivery<unknown> {
  /** For the middleware chain. */
  cursor = 0
  #payload: unknown = undefined
  settlement: Settlement = 'open'
  /** How it is (being) settled; undefined while it is open. */
  settledBy: 'ack' | 'retry' | 'dead-letter' | 'hand-back' | undefined = undefined
  /** Lets a half-open circuit try. */
  trial = false
  /** To be run again in this process, when its time has come and its handler has ended. */
  again: { readonly request: RetryRequest; readonly dueAt: number } | undefined = undefined
  /** The handler's call while it runs inside of middleware. */
  inner: Promise<void> | undefined = undefined
  /** Its place among the running. */
  slot = -1
  startedAt = 0
  /** Called when it was settled; for those who hand deliveries out. */
  onSettled: (() => void) | undefined = undefined
  #message: Message | undefined
  #state: Map<unknown, unknown> | undefined
  #abort: AbortController | undefined
  #revoked: RevokedError | undefined

  constructor(
    readonly host: ContextHost,
    readonly incoming: IncomingDelivery,
    readonly attempt: number,
    readonly firstFailedAt: number | undefined,
  ) {}

  get payload(): unknown {
    return this.#payload
  }

  /** Set anew for each run of the chain: what an earlier one did to it is gone. */
  set payload(value: unknown) {
    this.#payload = value
    this.#message = undefined
  }

  get topic(): string {
    return this.host.topic
  }

  get group(): string {
    return this.host.group
  }

  get deliveries(): number {
    return this.incoming.deliveries
  }

  get key(): string | undefined {
    return this.incoming.message.key
  }

  get message(): Message {
    if (this.#message === undefined) {
      const wire = this.incoming.message
      this.#message = {
        id: wire.id,
        topic: wire.topic,
        key: wire.key,
        payload: this.#payload,
        headers: wire.headers,
        contentType: wire.contentType,
        timestamp: wire.timestamp,
        correlationId: wire.correlationId,
        causationId: wire.causationId,
      }
    }
    return this.#message
  }

  get state(): Map<unknown, unknown> {
    this.#state ??= new Map()
    return this.#state
  }

  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController()
      if (this.#revoked !== undefined) this.#abort.abort(this.#revoked)
    }
    return this.#abort.signal
  }

  get settled(): boolean {
    return this.settlement !== 'open'
  }

  /** Taken away from this consumer: settling has no effect any more. */
  get revoked(): boolean {
    return this.#revoked !== undefined
  }

  revoke(reason: string): void {
    if (this.#revoked !== undefined) return
    this.#revoked = new RevokedError(`message ${this.incoming.message.id}: ${reason}`)
    this.#abort?.abort(this.#revoked)
  }

  /** Aborts the signal of this attempt, for a timeout. */
  abort(reason: unknown): void {
    this.signal
    this.#abort?.abort(reason)
  }

  get publish(): Publish {
    const { id, correlationId } = this.incoming.message
    return (topic, payload, options) =>
      this.host.publish(topic, payload, {
        correlationId: correlationId ?? id,
        causationId: id,
        ...options,
      })
  }

  ack(): Promise<boolean> {
    return this.host.ack(this)
  }

  retry(delay?: Duration, error?: unknown): Promise<boolean> {
    return this.host.retry(this, delay, error)
  }

  deadLetter(error?: unknown, reason?: DeadLetterReason): Promise<boolean> {
    return this.host.deadLetter(this, error, reason)
  }

  fail(error: unknown): Promise<boolean> {
    return this.host.attemptFailed(this, error)
  }
}
