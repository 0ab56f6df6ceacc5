/**
 * Every error that Longshore raises. `code` is stable and safe to switch on; `message` says what to do.
 * Codes: docs/errors.md.
 */
export abstract class LongshoreError extends Error {
  abstract readonly code: `LONGSHORE_${string}`

  override get name(): string {
    return this.constructor.name
  }
}

/** An option, name or argument is wrong. */
export class OptionError extends LongshoreError {
  readonly code: `LONGSHORE_${string}` = 'LONGSHORE_OPTION'
}

/** An option that does not exist, most often misspelt. */
export class UnknownOptionError extends OptionError {
  override readonly code = 'LONGSHORE_UNKNOWN_OPTION'
}

/** A topic or group name that not every broker can hold. */
export class NameError extends OptionError {
  override readonly code = 'LONGSHORE_NAME'
}

/** A header that is reserved, or has characters that the driver's broker can't carry. */
export class HeaderError extends OptionError {
  override readonly code = 'LONGSHORE_HEADER'
}

/** This driver, on this server, can't do what was asked. `capability` names what is missing. */
export class UnsupportedError extends LongshoreError {
  readonly code = 'LONGSHORE_UNSUPPORTED'

  constructor(
    message: string,
    readonly capability: string,
    readonly driver: string,
  ) {
    super(message)
  }
}

/** No driver has this URL scheme or name. */
export class UnknownDriverError extends LongshoreError {
  readonly code = 'LONGSHORE_UNKNOWN_DRIVER'
}

/** The driver's package is not installed; the message gives the command. */
export class DriverNotInstalledError extends LongshoreError {
  readonly code = 'LONGSHORE_DRIVER_NOT_INSTALLED'
}

/** The broker can't be reached, or not in time. Nothing was sent. */
export class ConnectionError extends LongshoreError {
  readonly code = 'LONGSHORE_CONNECTION'
}

/** The broker refused the credentials or the permission. */
export class AccessError extends LongshoreError {
  readonly code = 'LONGSHORE_ACCESS'
}

/** The bus, or the subscription, is closed. */
export class ClosedError extends LongshoreError {
  readonly code = 'LONGSHORE_CLOSED'
}

/** `close()` was called by a handler that it would have to wait for. */
export class CloseInHandlerError extends LongshoreError {
  readonly code = 'LONGSHORE_CLOSE_IN_HANDLER'
}

/** The topic or group does not exist and may not be created (`autoCreate: false`). */
export class NotFoundError extends LongshoreError {
  readonly code = 'LONGSHORE_NOT_FOUND'
}

/** What exists under this name was made with other settings. */
export class ConflictError extends LongshoreError {
  readonly code = 'LONGSHORE_CONFLICT'
}

/** The body is larger than the broker takes. */
export class TooLargeError extends LongshoreError {
  readonly code = 'LONGSHORE_TOO_LARGE'
}

/** The codec could not encode the payload. */
export class EncodeError extends LongshoreError {
  readonly code = 'LONGSHORE_ENCODE'
}

/** The codec could not decode the body. Dead-lettered without retries. */
export class DecodeError extends LongshoreError {
  readonly code = 'LONGSHORE_DECODE'
}

/** One thing that a schema objects to. */
export interface Issue {
  readonly message: string
  /** Where in the payload, for instance `items.0.price`; empty for the whole. */
  readonly path: string
}

/** The schema refused the payload (or threw). Publishing: nothing was sent. Consuming: dead-lettered without retries. */
export class ValidationError extends LongshoreError {
  readonly code = 'LONGSHORE_VALIDATION'

  constructor(
    message: string,
    readonly issues: readonly Issue[],
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

/** A publish that did not end well. `id` is the message's. */
export abstract class PublishError extends LongshoreError {
  constructor(
    message: string,
    readonly id: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

/** The broker refused the message; it was not stored. */
export class RejectedError extends PublishError {
  readonly code = 'LONGSHORE_REJECTED'
}

/** The deadline passed and the message was surely not sent. */
export class NotSentError extends PublishError {
  readonly code = 'LONGSHORE_NOT_SENT'
}

/**
 * The deadline passed (or the bus closed) and the broker may or may not have taken the message. Publishing again with
 * the same `id` is safe where consumers are idempotent.
 */
export class OutcomeUnknownError extends PublishError {
  readonly code = 'LONGSHORE_OUTCOME_UNKNOWN'
}

/** The outgoing buffer is full and its policy is `drop-newest`. Nothing was sent. */
export class SaturatedError extends PublishError {
  readonly code = 'LONGSHORE_SATURATED'
}

/** The message was pushed out of a full outgoing buffer by a newer one (policy `drop-oldest`). */
export class DroppedError extends PublishError {
  readonly code = 'LONGSHORE_DROPPED'
}

/** The publish was aborted before anything was sent. */
export class AbortedError extends PublishError {
  readonly code = 'LONGSHORE_ABORTED'
}

/** A handler took longer than the subscription's `timeout`. Counts as a failed attempt. */
export class HandlerTimeoutError extends LongshoreError {
  readonly code = 'LONGSHORE_HANDLER_TIMEOUT'
}

/** A middleware called `next` twice in one attempt. */
export class MiddlewareError extends LongshoreError {
  readonly code = 'LONGSHORE_MIDDLEWARE'
}

/** A handler threw something that is no Error; `thrown` has it. */
export class NonError extends LongshoreError {
  readonly code = 'LONGSHORE_NON_ERROR'

  constructor(readonly thrown: unknown) {
    super(
      `the handler threw ${show(thrown, true)}, which is no Error; throw an Error to keep its stack`,
    )
  }
}

/** To be thrown by handlers: this message can never succeed. Skips retries. */
export class PermanentError extends LongshoreError {
  readonly code = 'LONGSHORE_PERMANENT'
}

/** The delivery was taken from this consumer (lease lapsed, connection lost, closing); the reason of `ctx.signal`. */
export class RevokedError extends LongshoreError {
  readonly code = 'LONGSHORE_REVOKED'
}

/** Whatever else a driver's client threw, wrapped once; `cause` is the original. */
export class DriverError extends LongshoreError {
  readonly code = 'LONGSHORE_DRIVER'
}

/** An Error for whatever was thrown. */
export function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new NonError(thrown)
}

/** A `LongshoreError` for whatever a driver gave up. */
export function wrapDriverError(thrown: unknown, doing: string): LongshoreError {
  if (thrown instanceof LongshoreError) return thrown
  const error = toError(thrown)
  return new DriverError(`${doing}: ${error.message}`, { cause: error })
}

/** A value for a message: short, and whatever it is. */
export function show(value: unknown, withType = false): string {
  try {
    const text = typeof value === 'string' ? JSON.stringify(value) : String(value)
    const short = text.length > 80 ? `${text.slice(0, 80)}…` : text
    return withType ? `${typeof value} ${short}` : short
  } catch {
    return `an unprintable ${typeof value}`
  }
}
