import { type DeadLetterReason, deadLetterReasons, type Failure } from './dead-letter.js'

const prefix = 'longshore-dl-'

/**
 * What is kept at most, in characters. Escaped, each takes up to six bytes: all of it fits into one AMQP frame (128 KiB), beside
 * the headers of the message.
 */
const longest = { name: 200, message: 4000, stack: 8000 }

/**
 * A failure as headers, for drivers that keep dead letters as messages. Every value is printable and one line: name, message
 * and stack are escaped as within a JSON string. What is too long is cut: the name after 200 characters, the message after
 * 4,000, the stack after 8,000.
 */
export function encodeFailure(failure: Failure): Record<string, string> {
  return {
    [`${prefix}reason`]: failure.reason,
    [`${prefix}error-name`]: escaped(failure.errorName, longest.name),
    [`${prefix}error-message`]: escaped(failure.errorMessage, longest.message),
    [`${prefix}error-stack`]: escaped(failure.errorStack, longest.stack),
    [`${prefix}attempts`]: String(failure.attempts),
    [`${prefix}topic`]: failure.topic,
    [`${prefix}group`]: failure.group,
    [`${prefix}first-failed-at`]: String(failure.firstFailedAt),
    [`${prefix}last-failed-at`]: String(failure.lastFailedAt),
  }
}

/** The failure in these headers; undefined if they hold no complete record. Numbers may be numbers or text. */
export function decodeFailure(headers: Readonly<Record<string, unknown>>): Failure | undefined {
  const reason = headers[`${prefix}reason`] as DeadLetterReason
  const errorName = textIn(headers[`${prefix}error-name`])
  const errorMessage = textIn(headers[`${prefix}error-message`])
  const errorStack = textIn(headers[`${prefix}error-stack`])
  const attempts = numberIn(headers[`${prefix}attempts`])
  const topic = textIn(headers[`${prefix}topic`])
  const group = textIn(headers[`${prefix}group`])
  const firstFailedAt = numberIn(headers[`${prefix}first-failed-at`])
  const lastFailedAt = numberIn(headers[`${prefix}last-failed-at`])
  if (
    !deadLetterReasons.includes(reason) ||
    errorName === undefined ||
    errorMessage === undefined ||
    errorStack === undefined ||
    attempts === undefined ||
    topic === undefined ||
    group === undefined ||
    firstFailedAt === undefined ||
    lastFailedAt === undefined
  ) {
    return undefined
  }
  return {
    reason,
    errorName: unescaped(errorName),
    errorMessage: unescaped(errorMessage),
    errorStack: unescaped(errorStack),
    attempts,
    topic,
    group,
    firstFailedAt,
    lastFailedAt,
  }
}

/** JSON leaves DEL, the C1 controls and two line separators as they are; clients may trim white space at the ends. */
const leftover = /[\u007f-\u009f\u2028\u2029]|^\s|\s$/g

function escaped(text: string, max: number): string {
  return JSON.stringify(cut(text, max))
    .slice(1, -1)
    .replace(leftover, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** At most so many characters, and no half of a surrogate pair at the end. */
function cut(text: string, max: number): string {
  return text.length > max ? text.slice(0, max).replace(/[\ud800-\udbff]$/, '') : text
}

/** What somebody else wrote without escaping it is taken as it is. */
function unescaped(text: string): string {
  try {
    return JSON.parse(`"${text}"`)
  } catch {
    return text
  }
}

function textIn(value: unknown): string | undefined {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined
}

function numberIn(value: unknown): number | undefined {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value
  return typeof number === 'number' && Number.isFinite(number) ? number : undefined
}
