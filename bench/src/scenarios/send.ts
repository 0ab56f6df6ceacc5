/** The two ways to publish many messages. */
import { variety } from '../payloads.js'
import type { Session } from '../session.js'

/** Unconfirmed messages at once when they are published one by one. */
export const window = 256
export const batchSize = 500

export type Send = <T>(
  session: Session<T>,
  payloads: readonly T[],
  messages: number,
  keys?: readonly string[],
) => Promise<void>

/** One publish for each message, `window` of them waiting for their confirmation. */
export const oneByOne: Send = async (session, payloads, messages, keys = []) => {
  let seq = 0
  const lane = async () => {
    while (seq < messages) {
      const own = seq++
      const key = keys.length > 0 ? keys[own % keys.length] : undefined
      await session.publish(payloads[own % variety]!, key)
    }
  }
  await Promise.all(Array.from({ length: window }, lane))
}

export const inBatches: Send = async (session, payloads, messages) => {
  for (let seq = 0; seq < messages; seq += batchSize) {
    const length = Math.min(batchSize, messages - seq)
    const entries = Array.from({ length }, (_, i) => ({ payload: payloads[(seq + i) % variety]! }))
    await session.publishBatch(entries)
  }
}
