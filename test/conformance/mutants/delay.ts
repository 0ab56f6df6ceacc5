import type { OutgoingMessage } from './core.js'
import type { Connection, Mutant } from './wrap.js'

/** Changes delayed messages on their way to the broker. */
function delayed(change: (one: OutgoingMessage) => OutgoingMessage) {
  return ({ driver }: Connection) => ({
    publish(batch: readonly OutgoingMessage[], settle: Parameters<typeof driver.publish>[1]) {
      driver.publish(
        batch.map((one) => (one.delayMs > 0 ? change(one) : one)),
        settle,
      )
    },
  })
}

let longest = 0

export const delay: readonly Mutant[] = [
  {
    name: 'delivers delayed messages early',
    claims: { 'delay.never-early': /early/ },
    changes: { driver: delayed((one) => ({ ...one, delayMs: one.delayMs * 0.9 })) },
  },
  {
    name: 'ignores delays',
    claims: { 'delay.never-early': /early/, 'delay.survives-restart': /./, 'delay.at': /seen/ },
    changes: { driver: delayed((one) => ({ ...one, delayMs: 0 })) },
  },
  {
    name: 'keeps delayed messages in one queue, so that a short one waits behind a long one',
    claims: { 'delay.short-not-behind-long': /1 deliveries|of 300 ms behind/ },
    changes: {
      driver: delayed((one) => {
        longest = Math.max(longest, one.delayMs)
        return { ...one, delayMs: longest }
      }),
    },
  },
  {
    name: 'forgets the headers of delayed messages',
    claims: { 'delay.keeps-message': /headers/ },
    changes: {
      driver: delayed((one) => ({ ...one, message: { ...one.message, headers: {} } })),
    },
  },
  {
    name: 'keeps delayed messages in its process',
    claims: { 'delay.survives-restart': /10 deliveries; 0 came/ },
    changes: {
      driver: ({ driver, native }) => ({
        publish(batch, settle) {
          for (const [i, one] of batch.entries()) {
            if (one.delayMs === 0) {
              driver.publish([one], (_, failure) => settle(i, failure))
              continue
            }
            settle(i)
            setTimeout(() => {
              if (!native.broker.connections.has(driver as never)) return
              driver.publish([{ ...one, delayMs: 0 }], () => {})
            }, one.delayMs)
          }
        },
      }),
    },
  },
]
