import { randomFillSync } from 'node:crypto'

/**
 * A message as drivers see it: the encoded body and its metadata. Never changed after it was made; every property is
 * always present, so that all messages have one shape.
 */
export interface WireMessage {
  readonly id: string
  readonly topic: string
  readonly key: string | undefined
  readonly body: Uint8Array
  readonly headers: Headers
  readonly contentType: string
  /** Epoch milliseconds when it was published. */
  readonly timestamp: number
  readonly correlationId: string | undefined
  readonly causationId: string | undefined
}

/** Header names and values; names are case-sensitive and kept as they are. */
export type Headers = Readonly<Record<string, string>>

/** A message as handlers see it: immutable, the payload decoded and validated. */
export interface Message<T = unknown> {
  /** Unique; never changes, not by retry, delay, dead-lettering or redrive. */
  readonly id: string
  readonly topic: string
  readonly key: string | undefined
  readonly payload: T
  readonly headers: Headers
  readonly contentType: string
  /** Epoch milliseconds when it was published. */
  readonly timestamp: number
  readonly correlationId: string | undefined
  readonly causationId: string | undefined
}

/** Headers that begin so belong to Longshore; users may not set them. */
export const reservedPrefix = 'longshore-'

export const noHeaders: Headers = Object.freeze({})

const hex: readonly string[] = Array.from({ length: 256 }, (_, i) =>
  i.toString(16).padStart(2, '0'),
)
const pool = new Uint8Array(8192)
let used = pool.length
let lastTime = 0
let sequence = 0
/** The part of the id that holds `lastTime`. */
let timePart = ''

/** A UUID of version 7 (RFC 9562): sortable by time, and in order of creation within one process. */
export function newId(now: number = Date.now()): string {
  // A clock that was turned back by more than a minute begins anew: it is another clock, or was wrong before.
  if (now > lastTime || now < lastTime - 60_000) startTime(now)
  else if (++sequence > 0xfff) startTime(lastTime + 1)
  if (used + 8 > pool.length) {
    randomFillSync(pool)
    used = 0
  }
  const at = used
  used += 8
  return (
    timePart +
    hex[sequence >>> 8]!.charAt(1) +
    hex[sequence & 255] +
    '-' +
    hex[(pool[at]! & 0x3f) | 0x80] +
    hex[pool[at + 1]!] +
    '-' +
    hex[pool[at + 2]!] +
    hex[pool[at + 3]!] +
    hex[pool[at + 4]!] +
    hex[pool[at + 5]!] +
    hex[pool[at + 6]!] +
    hex[pool[at + 7]!]
  )
}

function startTime(time: number): void {
  lastTime = time
  sequence = 0
  const digits = Math.floor(time).toString(16).padStart(12, '0')
  timePart = `${digits.slice(0, 8)}-${digits.slice(8)}-7`
}
