import { Ledger, makerOf, payloadsOf, variety } from '../payloads.js'
import { type Kind, type Settings, type Target, withSession } from '../session.js'
import type { Load } from './scenario.js'
import { oneByOne } from './send.js'

/** Counts the messages that came in another order than they were published in, key by key. `keys` divides `variety`. */
export class KeyOrder {
  readonly #due: number[]
  violations = 0

  constructor(keys: number) {
    this.#due = Array.from({ length: keys }, (_, key) => key)
  }

  see(number: number): void {
    const key = number % this.#due.length
    if (this.#due[key] !== number) this.violations++
    this.#due[key] = (number + this.#due.length) % variety
  }
}

/**
 * Published one by one and handled at the same time: messages per second from the first publish to the last one handled.
 * `keys` are used in turn; 0 = none.
 */
export async function flow<K extends Kind>(
  target: Target,
  settings: Settings<K>,
  { messages, patienceMs, now }: Load,
  bytes: number,
  keys = 0,
): Promise<number> {
  const { read } = makerOf(settings.kind, bytes)
  const payloads = payloadsOf(settings.kind, bytes)
  const names = Array.from({ length: keys }, (_, i) => `k${i}`)
  const order = keys > 0 ? new KeyOrder(keys) : undefined
  const ledger = new Ledger(messages, variety)
  return withSession(target, settings, async (session) => {
    await session.consume(async (payload) => {
      const number = read(payload)
      order?.see(number)
      ledger.mark(number)
    })
    const start = now()
    await oneByOne(session, payloads, messages, names)
    await ledger.complete(patienceMs)
    const end = now()
    if (order !== undefined && order.violations > 0) {
      throw new Error(`${order.violations} messages came out of the order of their keys`)
    }
    return (messages * 1000) / (end - start)
  })
}
