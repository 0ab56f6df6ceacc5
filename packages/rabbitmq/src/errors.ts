import {
  AccessError,
  ConflictError,
  ConnectionError,
  type LongshoreError,
  NotFoundError,
  OptionError,
  UnsupportedError,
} from '@longshore/core'
import { wrapDriverError } from '@longshore/core/driver'

/** AMQP's reply codes (0-9-1 specification, "constants") that say something of what was asked for. */
export const reply = {
  accessRefused: 403,
  notFound: 404,
  resourceLocked: 405,
  preconditionFailed: 406,
} as const

/** The reply code of an error of the client, which keeps it only in the text for some. */
export function codeOf(error: unknown): number | undefined {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: string }
  if (typeof code === 'number') return code
  const match = /\b([3-5]\d\d) \([A-Z-]+\)/.exec(message ?? '')
  return match === null ? undefined : Number(match[1])
}

/** What the broker itself said, without the client's frame around it. */
export function textOf(error: unknown): string {
  const { message } = error as Error
  return /with message "(?:[A-Z_]+ - )?(.*)"$/s.exec(message)?.[1] ?? message
}

/** A typed error that says what to do. `doing`: for instance "declaring queue 'a..b'". */
export function toTyped(error: unknown, doing: string): LongshoreError {
  const said = `${doing}: ${textOf(error)}`
  const options = { cause: error }
  switch (codeOf(error)) {
    case reply.accessRefused:
      if (/ in exclusive use$/.test(said)) {
        return new ConflictError(
          `${said}: another consumer asked to be the only one; end it, or choose another group name`,
          options,
        )
      }
      return new AccessError(
        `${said}; grant it with rabbitmqctl set_permissions, or use what exists with autoCreate: false`,
        options,
      )
    case reply.notFound:
      return new NotFoundError(
        `${said}; create it with bus.admin, or allow it with autoCreate: true`,
        options,
      )
    case reply.resourceLocked:
    case reply.preconditionFailed:
      return new ConflictError(
        `${said}; ask for the settings that it was made with, delete it once it is empty, or use it as it is with autoCreate: false`,
        options,
      )
    default:
      return isLost(error) ? new ConnectionError(said, options) : wrapDriverError(error, doing)
  }
}

/** Whether it only says that the channel or the connection went away meanwhile: worth another try. */
export function isLost(error: unknown): boolean {
  if (error instanceof ConnectionError) return true
  // What the client can't encode has codes that look like those of sockets.
  if (error instanceof RangeError || error instanceof TypeError) return false
  const { code, message = '', name } = error as NodeJS.ErrnoException
  if (name === 'IllegalOperationError') return true
  if (typeof code === 'string' && /^E[A-Z]+/.test(code)) return true
  return /Channel (?:ended|closed|closing)|channel closed|Connection clos|CONNECTION-FORCED|Socket closed|Heartbeat timeout|Unexpected close/.test(
    message,
  )
}

const final = [AccessError, ConflictError, NotFoundError, OptionError, UnsupportedError]

/** Whether repeating it is useless until somebody changes something. */
export function isFinal(error: unknown): boolean {
  return final.some((one) => error instanceof one)
}
