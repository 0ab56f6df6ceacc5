import type { OutgoingMessage, PublishSettle } from './core.js'
import type { Mutant } from './wrap.js'

const ignore: PublishSettle = () => {}

/** Every seventh call is true. */
function everySeventh(): () => boolean {
  let count = 0
  return () => ++count % 7 === 0
}

export const publish: readonly Mutant[] = [
  {
    name: 'confirms before it stores',
    claims: { 'publish.confirmed-survives-crash': /all confirmed messages/ },
    changes: {
      driver: ({ driver }) => ({
        publish(batch, settle) {
          batch.forEach((_, i) => {
            settle(i)
          })
          setTimeout(() => driver.publish(batch, ignore), 30)
        },
      }),
    },
  },
  {
    name: 'confirms and does not store every seventh message',
    claims: {
      'publish.confirmed-is-stored': /"lost":[1-9]/,
      'publish.concurrent': /"lost":[1-9]/,
      'groups.isolation': /25 messages in each topic/,
      'groups.share': /"lost":[1-9]/,
      'groups.join-and-leave': /"lost":[1-9]/,
      'groups.durable-offline': /"lost":[1-9]/,
      'load.backlog': /10000 messages; [0-9]+ came/,
      'load.prefetch': /27 of 30/,
      'batch.size': /35 messages; 30 came/,
      'order.one-consumer': /"lost":[1-9]/,
      'order.ten-consumers': /"lost":[1-9]/,
      'connection.restarts-under-load': /"lost":[1-9]/,
    },
    changes: {
      driver: ({ driver }) => {
        const lose = everySeventh()
        return {
          publish(batch, settle) {
            batch.forEach((message, i) => {
              if (lose()) settle(i)
              else driver.publish([message], (_, failure) => settle(i, failure))
            })
          },
        }
      },
    },
  },
  {
    name: 'stores only the first of a batch and confirms all',
    claims: { 'publish.batch-outcomes': /messages 0, 3 and 4; saw/ },
    changes: {
      driver: ({ driver }) => ({
        publish(batch, settle) {
          driver.publish(batch.slice(0, 1), settle)
          batch.slice(1).forEach((_, i) => {
            settle(i + 1)
          })
        },
      }),
    },
  },
  {
    name: 'reports as done what it does not know',
    claims: {
      'publish.confirm-lost': /publish resolved though its confirmation was lost/,
      'publish.unknown-at-deadline': /LONGSHORE_OUTCOME_UNKNOWN, saw \{ id/,
      'publish.lost-is-not-done': /LONGSHORE_NOT_SENT, saw \{ id/,
      'publish.cut-before-confirm': /"lost":[1-9]/,
      'publish.buffer-block': /./,
      'publish.buffer-drop-newest': /saturation errors|5 messages; saw/,
      'publish.buffer-drop-oldest': /7 drops|the newest, which must have been taken/,
    },
    changes: {
      driver: ({ driver }) => ({
        publish(batch, settle) {
          driver.publish(batch, (index, failure) => {
            settle(index, failure?.outcome === 'rejected' ? failure : undefined)
          })
        },
      }),
    },
  },
  {
    name: "reports a refusal as 'unknown', so that it is tried until the deadline",
    claims: { 'publish.rejected': /the refusal to arrive/ },
    changes: {
      driver: ({ driver }) => ({
        publish(batch, settle) {
          driver.publish(batch, (index, failure) => {
            settle(index, failure && { ...failure, outcome: 'unknown' })
          })
        },
      }),
    },
  },
  {
    name: 'gives a message a new id when it is sent again',
    claims: { 'publish.confirm-lost': /ids of all copies/ },
    changes: {
      driver: ({ driver }) => {
        const sent = new Set<string>()
        const renew = (one: OutgoingMessage): OutgoingMessage => {
          const { message } = one
          if (!sent.has(message.id)) {
            sent.add(message.id)
            return one
          }
          return { ...one, message: { ...message, id: `${message.id}-again` } }
        }
        return { publish: (batch, settle) => driver.publish(batch.map(renew), settle) }
      },
    },
  },
  {
    name: 'cuts headers with control characters short',
    claims: {
      'fidelity.header-values': /headers with a tab/,
      'fidelity.header-names': /headers with/,
    },
    changes: {
      driver: ({ driver }) => ({
        publish(batch, settle) {
          const cut = (text: string) => text.replace(/[\t\n\r\0\u007f].*$/s, '')
          const clean = batch.map((one) => ({
            ...one,
            message: {
              ...one.message,
              headers: Object.fromEntries(
                Object.entries(one.message.headers).map(([name, value]) => [cut(name), cut(value)]),
              ),
            },
          }))
          driver.publish(clean, settle)
        },
      }),
    },
  },
]
