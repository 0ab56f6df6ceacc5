import { HeaderError } from '@longshore/core'

export type Table = Record<string, unknown>

/** Bytes that the client has for all headers of a message. */
export const headerBytes = 64 * 1024
/** What a retry or, cut as far as it can be, the record of a dead letter adds. */
const reserved = 2048

/** @throws HeaderError if a retry or a dead letter of this message could not hold its headers */
export function checkHeaderSize(headers: Table): void {
  const size = sizeOf(headers)
  if (size <= headerBytes - reserved) return
  throw new HeaderError(
    `the headers have ${size} bytes, with names and Longshore's own; RabbitMQ's client takes 64 KiB, of which ` +
      `${reserved / 1024} KiB are kept for retries and dead letters; put large values into the payload`,
  )
}

/** In bytes, as the client encodes them. */
export function sizeOf(headers: Table): number {
  let size = 4
  for (const name of Object.keys(headers)) {
    const value = headers[name]
    if (value !== undefined) size += 1 + Buffer.byteLength(name) + sizeOfValue(value)
  }
  return size
}

/** With its type; numbers at their largest. */
function sizeOfValue(value: unknown): number {
  if (typeof value === 'string') return 5 + Buffer.byteLength(value)
  if (Buffer.isBuffer(value)) return 5 + value.length
  if (Array.isArray(value)) return value.reduce((sum, each) => sum + sizeOfValue(each), 5)
  if (value !== null && typeof value === 'object') return 1 + sizeOf(value as Table)
  return 9
}
