import type { WireMessage } from './message.js'

/**
 * Why a message was dead-lettered:
 * `exhausted` its attempts are used up · `permanent` a `PermanentError` · `undecodable` the codec refused the body ·
 * `invalid` the schema refused the payload · `delivery-limit` its consumers crashed too often · `parked` its key's
 * circuit is open · `requested` the handler asked for it · `escaped` an error passed a user's own failure middleware.
 */
export type DeadLetterReason = (typeof deadLetterReasons)[number]

export const deadLetterReasons = [
  'exhausted',
  'permanent',
  'undecodable',
  'invalid',
  'delivery-limit',
  'parked',
  'requested',
  'escaped',
] as const

/** What is kept beside a dead-lettered message; the same on every driver. Times are epoch milliseconds. */
export interface Failure {
  readonly reason: DeadLetterReason
  readonly errorName: string
  readonly errorMessage: string
  /** Truncated to the dead-letter policy's `maxStack` characters; empty if the error has none. */
  readonly errorStack: string
  readonly attempts: number
  readonly topic: string
  readonly group: string
  readonly firstFailedAt: number
  readonly lastFailedAt: number
}

export interface StoredDeadLetter {
  readonly message: WireMessage
  readonly failure: Failure
}

/** Which dead letters an operation takes; all conditions must hold. Without any: all. */
export interface DeadLetterSelection {
  readonly ids?: ReadonlySet<string>
  readonly match?: (letter: StoredDeadLetter) => boolean
  /** At most so many, oldest first. */
  readonly limit?: number
  readonly signal?: AbortSignal
}

/** Optional ability of a driver: look at dead letters and move them. Oldest first everywhere. */
export interface DeadLetterAccess {
  browse(topic: string, group: string): AsyncIterable<StoredDeadLetter>
  /**
   * Sends the selected ones back to this group alone, in order, attempt 1, same id. Each leaves the dead letters only
   * when its copy is durable, so that a crash half-way repeats at most one page and loses none. Resolves to their number.
   */
  redrive(topic: string, group: string, selection: DeadLetterSelection): Promise<number>
  /** Deletes the selected ones for good. Resolves to their number. */
  discard(topic: string, group: string, selection: DeadLetterSelection): Promise<number>
}
