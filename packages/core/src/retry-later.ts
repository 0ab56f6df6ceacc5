import { type Duration, toMs } from './duration.js'
import { LongshoreError } from './errors.js'

export interface RetryLaterOptions extends ErrorOptions {
  /** False: this does not use up an attempt, however often it happens. Default true. */
  readonly counted?: boolean
}

/** To be thrown by handlers: try again after `delay`, instead of the retry policy's backoff. */
export class RetryLaterError extends LongshoreError {
  readonly code = 'LONGSHORE_RETRY_LATER'
  /** Milliseconds. */
  readonly delayMs: number
  readonly counted: boolean

  constructor(
    delay: Duration,
    message = 'the handler asked for a later retry',
    options: RetryLaterOptions = {},
  ) {
    super(message, options)
    this.counted = options.counted ?? true
    this.delayMs = toMs(delay, 'RetryLaterError delay')
  }
}
