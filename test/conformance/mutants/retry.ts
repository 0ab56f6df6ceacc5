import { altered } from './settle.js'
import type { Mutant } from './wrap.js'

export const retry: readonly Mutant[] = [
  {
    name: 'drops what should be retried',
    claims: {
      'settle.retry-increments': /3 attempts; 1 came/,
      'batch.partial-failure': /10 messages and 4 retries/,
      'order.key-through-retries': /5 messages of each key/,
      'order.skip': /5 messages; done are/,
      'settle.retry-delay': /second attempts; 0 came/,
      'settle.dead-letter': /the dead letter/,
    },
    changes: { subscription: ({ member }) => ({ retry: (delivery) => member.ack(delivery) }) },
  },
  {
    name: 'does not raise the attempt',
    claims: { 'settle.retry-increments': /attempts: expected \[ 1, 2, 3 \]|3 attempts/ },
    changes: {
      subscription: ({ member }) => ({
        retry: (delivery, request) =>
          member.retry(delivery, { ...request, attempt: delivery.attempt }),
      }),
    },
  },
  {
    name: 'mints a new id for each attempt',
    claims: {
      'settle.retry-increments': /id of attempt 2/,
      'fidelity.foreign-message': /id of the second attempt/,
    },
    changes: {
      delivery(delivery) {
        if (delivery.attempt === 1) return delivery
        const id = `${delivery.message.id}-${delivery.attempt}`
        return altered(delivery, { message: { ...delivery.message, id } })
      },
    },
  },
  {
    name: 'forgets the headers of a retry',
    claims: {
      'settle.retry-increments': /headers of attempt 2/,
      'settle.redelivery-context': /headers/,
    },
    changes: {
      delivery: (delivery) =>
        delivery.attempt + delivery.deliveries === 2
          ? delivery
          : altered(delivery, { message: { ...delivery.message, headers: {} } }),
    },
  },
  {
    name: 'retries early',
    claims: { 'settle.retry-delay': /early/ },
    changes: {
      subscription: ({ member }) => ({
        retry: (delivery, request) =>
          member.retry(delivery, { ...request, delayMs: request.delayMs * 0.8 }),
      }),
    },
  },
  {
    name: 'retries late',
    claims: { 'settle.retry-delay': /late/ },
    changes: {
      subscription: ({ member }) => ({
        retry: (delivery, request) =>
          member.retry(delivery, { ...request, delayMs: request.delayMs + 350 }),
      }),
    },
  },
  {
    name: 'keeps retries in one queue, so that a short one waits behind a long one',
    claims: { 'settle.short-retry-behind-long': /./ },
    changes: {
      subscription({ member }) {
        let last = 0
        return {
          retry(delivery, request) {
            last = Math.max(last, Date.now() + request.delayMs)
            return member.retry(delivery, { ...request, delayMs: last - Date.now() })
          },
        }
      },
    },
  },
  {
    name: 'holds retries in flight until they are due',
    claims: { 'settle.long-retry': /20 messages behind 20 that wait/ },
    changes: {
      subscription: ({ member }) => ({
        retry: (delivery, request) =>
          new Promise((resolve) => {
            const again = () => resolve(member.retry(delivery, { ...request, delayMs: 0 }))
            setTimeout(again, request.delayMs).unref()
          }),
      }),
    },
  },
  {
    name: 'acks when it could not store the retry',
    claims: { 'settle.retry-store-fails': /waited|in vain/ },
    changes: {
      subscription: ({ member }) => ({
        async retry(delivery, request) {
          try {
            return await member.retry(delivery, request)
          } catch {
            return member.ack(delivery)
          }
        },
      }),
    },
  },
]
