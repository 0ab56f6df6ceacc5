import type { Kind, Order, Payloads } from './session.js'

/** Bytes of a text or binary, where a scenario doesn't say. */
const usual = 256
const digits = 8

/** Makes the payload of a number, and reads the number back: how a scenario knows what it has handled. */
export interface Maker<T> {
  make(seq: number): T
  read(payload: T): number
}

const makers: { readonly [K in Kind]: (bytes: number) => Maker<Payloads[K]> } = {
  text(bytes) {
    const filler = 'x'.repeat(bytes - digits)
    return {
      // By way of bytes, so that it is one flat string and not a rope that somebody has to flatten later.
      make: (seq) => Buffer.from(filler + String(seq).padStart(digits, '0')).toString('latin1'),
      read(payload) {
        let seq = 0
        for (let at = bytes - digits; at < bytes; at++) seq = seq * 10 + payload.charCodeAt(at) - 48
        return seq
      },
    }
  },
  binary: (bytes) => ({
    make(seq) {
      const payload = new Uint8Array(bytes)
      payload[0] = seq
      payload[1] = seq >>> 8
      payload[2] = seq >>> 16
      return payload
    },
    read: (payload) => payload[0]! | (payload[1]! << 8) | (payload[2]! << 16),
  }),
  json: () => ({
    make: (seq): Order => ({ seq, customer: `customer-${seq % 64}`, total: seq % 1000 }),
    read: ({ seq }) => seq,
  }),
}

/** Different payloads in a measurement; more would only make the heap large, which slows down all that is measured. */
export const variety = 4096

/**
 * The payloads of a measurement, used in turn, made before its clock starts: they are the application's cost, not the
 * library's.
 */
export function payloadsOf<K extends Kind>(kind: K, bytes = usual): readonly Payloads[K][] {
  const { make } = makerOf(kind, bytes)
  return Array.from({ length: variety }, (_, number) => make(number))
}

export function makerOf<K extends Kind>(kind: K, bytes = usual): Maker<Payloads[K]> {
  return makers[kind](bytes)
}

/**
 * Counts what was handled, by number, and resolves `all` when nothing is missing. With fewer numbers than messages they are used
 * in turn, and each must come as often as it was published; what comes more often counts for nothing.
 */
export class Ledger {
  readonly #left: Uint32Array
  readonly all: Promise<void>
  #resolve!: () => void
  #awaited = -1
  #wake: (() => void) | undefined
  handled = 0

  constructor(
    readonly expected: number,
    numbers = expected,
  ) {
    this.#left = new Uint32Array(numbers)
    for (let seq = 0; seq < expected; seq++) this.#left[seq % numbers]!++
    this.all = new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  mark(number: number): void {
    // Undefined for a number that was never published: it marks nothing, and the run never ends well.
    if (!(this.#left[number]! > 0)) return
    this.#left[number]!--
    if (++this.handled === this.expected) this.#resolve()
    if (this.handled === this.#awaited) this.#wake?.()
  }

  /** Resolves when so many were handled. One may wait at a time. */
  reach(count: number): Promise<void> {
    if (this.handled >= count) return Promise.resolve()
    this.#awaited = count
    return new Promise((resolve) => {
      this.#wake = resolve
    })
  }

  /** Rejects if something is still missing after so long. */
  async complete(timeoutMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        const lost = this.expected - this.handled
        reject(new Error(`${lost} of ${this.expected} messages were not handled in time`))
      }, timeoutMs)
    })
    await Promise.race([this.all, late]).finally(() => clearTimeout(timer))
  }
}
