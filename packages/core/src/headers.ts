import type { HeaderCharset } from './capabilities.js'
import { HeaderError, show } from './errors.js'
import { type Headers, noHeaders, reservedPrefix } from './message.js'

const token = /^[A-Za-z0-9._-]+$/
const printable = /^[^\u0000-\u001f\u007f]*$/

/**
 * A frozen copy of a user's headers.
 * @throws HeaderError for a reserved name, a value that is no string, or characters that the broker can't carry
 */
export function checkHeaders(
  headers: Headers | undefined,
  charset: HeaderCharset,
  driver: string,
): Headers {
  if (headers === undefined) return noHeaders
  if (!isPlain(headers)) {
    throw new HeaderError(`headers must be a plain object of strings, not ${show(headers)}`)
  }
  const names = Object.keys(headers)
  if (names.length === 0) return noHeaders
  for (const name of names) {
    const value: unknown = headers[name]
    if (name.toLowerCase().startsWith(reservedPrefix)) {
      throw new HeaderError(
        `header '${name}': names that begin with '${reservedPrefix}' are reserved; use another`,
      )
    }
    if (name === '' || !fits(name, charset.names)) {
      throw new HeaderError(
        `header ${JSON.stringify(name)}: ${driver} takes header names of ${describe[charset.names]} only`,
      )
    }
    if (typeof value !== 'string') {
      throw new HeaderError(`header '${name}' is a ${typeof value}; header values are strings`)
    }
    if (!fits(value, charset.values)) {
      throw new HeaderError(
        `header '${name}': ${driver} takes header values of ${describe[charset.values]} only`,
      )
    }
  }
  return Object.freeze({ ...headers })
}

/** No Map, no fetch Headers, no array: their entries aren't properties. */
function isPlain(headers: unknown): boolean {
  if (headers === null || typeof headers !== 'object') return false
  const prototype: unknown = Object.getPrototypeOf(headers)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

const describe = {
  token: "letters, digits, '.', '_' and '-'",
  printable: 'printable characters',
  unicode: 'well-formed Unicode',
} as const

function fits(text: string, charset: keyof typeof describe): boolean {
  if (charset === 'token') return token.test(text)
  if (charset === 'printable') return isPrintable(text)
  return isWellFormed(text)
}

/** No control characters, and well-formed. */
export function isPrintable(text: string): boolean {
  return printable.test(text) && isWellFormed(text)
}

/** Whether it has no lone surrogates, which UTF-8 can't carry. */
function isWellFormed(text: string): boolean {
  return !/\p{Surrogate}/u.test(text)
}
