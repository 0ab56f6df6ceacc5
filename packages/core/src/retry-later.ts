import { type Duration, toMs } from './duration.js'
import { LongshoreError } from './errors.js'

/** To be thrown by handlers: try again after `delay`, instead of the retry policy's backoff. Counts as an attempt. */
export class RetryLaterError extends LongshoreError {
  readonly code = 'LONGSHORE_RETRY_LATER'
  readonly delayMs: number

  constructor(
    delay: Duration,
    message = 'the handler asked for a later retry',
    options?: ErrorOptions,
  ) {
    super(message, options)
    this.delayMs = toMs(delay, 'RetryLaterError delay')
  }
}
