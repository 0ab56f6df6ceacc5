import type { PublishOutcome } from '../api.js'
import {
  AbortedError,
  DroppedError,
  LongshoreError,
  NotSentError,
  OutcomeUnknownError,
  RejectedError,
  SaturatedError,
  toError,
} from '../errors.js'
import type { Entry } from './entry.js'

/** The ways in which a publish ends without a confirmation. Each says whether the broker may have the message. */

const about = ({ message }: Entry) => `message ${message.id} for '${message.topic}'`

function failed({ message }: Entry, error: LongshoreError): PublishOutcome {
  return { status: 'failed', id: message.id, error }
}

function unknown({ message }: Entry, text: string, cause: unknown): PublishOutcome {
  const { id } = message
  const error = new OutcomeUnknownError(text, id, cause === undefined ? {} : { cause })
  return { status: 'unknown', id, error }
}

/** The broker refused it for good. */
export function rejected(entry: Entry, reason: unknown): PublishOutcome {
  const { message } = toError(reason)
  const error =
    reason instanceof LongshoreError
      ? reason
      : new RejectedError(`${about(entry)} was refused: ${message}`, entry.message.id, {
          cause: reason,
        })
  if (!entry.maybeSent) return failed(entry, error)
  // Only the repeat was refused: the first try may have been taken.
  return unknown(
    entry,
    `${about(entry)} may have been taken; a repeat was refused: ${message}`,
    error,
  )
}

export function aborted(entry: Entry): PublishOutcome {
  const cause: unknown = entry.signal?.reason
  if (entry.mayBeTaken) {
    const text = `${about(entry)}: aborted after it was handed to the broker; it may have been taken`
    return unknown(entry, text, cause)
  }
  const text = `${about(entry)} was aborted; nothing was sent`
  return failed(entry, new AbortedError(text, entry.message.id, { cause }))
}

/** Its time is over: `because` says why. */
export function expired(entry: Entry, because: string): PublishOutcome {
  const cause = entry.lastError
  const last = cause === undefined ? '' : `; last: ${toError(cause).message}`
  if (entry.mayBeTaken) {
    const text = `${about(entry)}: ${because} and the broker may or may not have taken it${last}`
    return unknown(entry, text, cause)
  }
  const text = `${about(entry)} was not sent: ${because}${last}`
  return failed(
    entry,
    new NotSentError(text, entry.message.id, cause === undefined ? {} : { cause }),
  )
}

/** The buffer is full, and its policy chose this one. */
export function dropped(
  entry: Entry,
  policy: 'drop-oldest' | 'drop-newest',
  full: string,
): PublishOutcome {
  const { id } = entry.message
  if (policy === 'drop-oldest') {
    return failed(
      entry,
      new DroppedError(`${about(entry)} was dropped for newer ones: ${full}`, id),
    )
  }
  const cure = 'slow down, or raise publish.buffer.max'
  return failed(entry, new SaturatedError(`${about(entry)} was not sent: ${full}; ${cure}`, id))
}
