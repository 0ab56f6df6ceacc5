import type { Kind, Order, Payloads } from './session.js'

const size = 256
const digits = 8
const filler = 'x'.repeat(size - digits)

/** Makes the payload of a number, and reads the number back: how a scenario knows what it has handled. */
export interface Maker<T> {
  make(seq: number): T
  read(payload: T): number
}

const makers: { readonly [K in Kind]: Maker<Payloads[K]> } = {
  text: {
    make: (seq) => filler + String(seq).padStart(digits, '0'),
    read(payload) {
      let seq = 0
      for (let at = size - digits; at < size; at++) seq = seq * 10 + payload.charCodeAt(at) - 48
      return seq
    },
  },
  binary: {
    make(seq) {
      const bytes = new Uint8Array(size)
      bytes[0] = seq
      bytes[1] = seq >>> 8
      bytes[2] = seq >>> 16
      return bytes
    },
    read: (payload) => payload[0]! | (payload[1]! << 8) | (payload[2]! << 16),
  },
  json: {
    make: (seq): Order => ({ seq, customer: `customer-${seq % 64}`, total: seq % 1000 }),
    read: ({ seq }) => seq,
  },
}

export function makerOf<K extends Kind>(kind: K): Maker<Payloads[K]> {
  return makers[kind]
}

/** Marks what was handled, by number, and resolves `all` when nothing is missing. */
export class Ledger {
  readonly #seen: Uint8Array
  readonly all: Promise<void>
  #resolve!: () => void
  handled = 0

  constructor(readonly expected: number) {
    this.#seen = new Uint8Array(expected)
    this.all = new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  mark(seq: number): void {
    // Undefined for a number that was never published: it marks nothing, and the run never ends well.
    if (this.#seen[seq] !== 0) return
    this.#seen[seq] = 1
    if (++this.handled === this.expected) this.#resolve()
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
