import type { OutgoingMessage } from './core.js'
import { type Connection, type Mutant, plain } from './wrap.js'

/** Changes messages on their way to the broker. */
function sent(change: (one: OutgoingMessage) => OutgoingMessage) {
  return ({ driver }: Connection) => ({
    publish(batch: readonly OutgoingMessage[], settle: Parameters<typeof driver.publish>[1]) {
      driver.publish(batch.map(change), settle)
    },
  })
}

export const routing: readonly Mutant[] = [
  {
    name: 'ignores the routes of groups',
    claims: {
      'routing.exact': /group with routes eu.created,eu.paid/,
      'routing.wildcards': /group with routes \*/,
      'routing.offline': /messages of the group/,
      'routing.key-order': /of route c|came as/,
      'routing.replay': /seen by the late group/,
    },
    changes: { spec: (spec) => ({ ...spec, routes: undefined }) },
  },
  {
    name: 'drops the routes of messages',
    claims: {
      'routing.exact': /each group to get its messages/,
      'routing.wildcards': /each group to get its messages/,
      'routing.replay': /2 deliveries; 0 came/,
    },
    changes: { driver: sent((one) => ({ ...one, route: undefined })) },
  },
  {
    name: 'forgets the routes of delayed messages',
    claims: { 'routing.delay': /1 deliveries; 0 came/ },
    changes: { driver: sent((one) => (one.delayMs > 0 ? { ...one, route: undefined } : one)) },
  },
  {
    name: "takes '*' for '#'",
    claims: { 'routing.wildcards': /group with routes \*/ },
    changes: {
      spec: (spec) => ({ ...spec, routes: spec.routes?.map((r) => r.replaceAll('*', '#')) }),
    },
  },
  {
    name: 'retries through the topic',
    claims: { 'routing.retry': /2 deliveries; 1 came|attempts/ },
    changes: {
      subscription: ({ member, connection }) => ({
        retry(delivery, { delayMs }) {
          connection.driver.publish([{ ...plain, message: delivery.message, delayMs }], () => {})
          return member.ack(delivery)
        },
      }),
    },
  },
]
