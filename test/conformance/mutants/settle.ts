import type { IncomingDelivery, Sink } from './core.js'
import { type Mutant, overlay } from './wrap.js'

export const settle: readonly Mutant[] = [
  {
    name: 'acks when it delivers, before the handler ran',
    claims: {
      'settle.ack-after-handler': /the unacked message to come back/,
      'settle.sigkill': /the heir to get the rest/,
      'settle.redelivery-context': /2 deliveries; 0 came/,
      'settle.lease-lapses': /1 deliveries; 0 came/,
      'settle.poison-process': /to kill its process/,
      'order.after-crash': /"lost":[1-9]/,
      'lifecycle.close-dead-letters-nothing': /./,
    },
    changes: {
      sink: ({ sink, member }) => ({
        deliver(batch) {
          for (const delivery of batch) member.ack(delivery)
          sink.deliver(batch)
        },
      }),
      subscription: () => ({ ack: () => true }),
    },
  },
  {
    name: 'forgets every fifth ack',
    claims: {
      'settle.ack-is-final': /seen after all others were acked/,
      'settle.ack-is-final-after-cut': /in vain for 25 deliveries/,
    },
    changes: {
      subscription: ({ member }) => {
        let count = 0
        return { ack: (delivery) => (++count % 5 === 0 ? true : member.ack(delivery)) }
      },
    },
  },
  {
    name: 'drops what it delivers again',
    claims: {
      'settle.ack-after-handler': /the unacked message to come back/,
      'settle.redelivery-context': /2 deliveries; 0 came/,
      'settle.poison-process': /to kill its process/,
      'settle.sigkill': /the heir to get the rest/,
    },
    changes: {
      sink: ({ sink, member }) => ({
        deliver(batch) {
          for (const delivery of batch) {
            if (delivery.deliveries > 1) member.ack(delivery)
            else sink.deliver([delivery])
          }
        },
      }),
    },
  },
  {
    name: 'takes deliveries away without a word and says true to whoever settles them',
    claims: {
      'settle.after-revocation': /./,
      'settle.lease-lapses': /the zombie's ack/,
    },
    changes: {
      sink: () => ({ revoke: () => {} }),
      subscription: ({ member }) => ({
        async ack(delivery) {
          await member.ack(delivery)
          return true
        },
      }),
    },
  },
  {
    name: 'says true to every ack',
    claims: {
      'settle.twice': /settling message 0 four times/,
      'settle.by-hand': /second ack/,
    },
    changes: {
      bus: (bus) => ({
        subscribe: (topic, options, handler) =>
          bus.subscribe(topic, options, (payload, context) => {
            const ack = () => context.ack().then(() => true)
            return handler(payload, overlay(context, { ack }))
          }),
        consume(topic, options) {
          const consumption = bus.consume<never, never>(topic as never, options)
          const deliveries = async function* () {
            for await (const delivery of consumption) {
              const ack = () => delivery.ack().then(() => true)
              yield overlay(delivery, { ack })
            }
          }
          return overlay(consumption, { [Symbol.asyncIterator]: deliveries }) as never
        },
      }),
    },
  },
  {
    name: 'renews no leases',
    claims: { 'settle.lease-renewed': /deliveries of the message that took 3.5 leases/ },
    changes: { subscription: () => ({ heartbeat: () => {} }) },
  },
  {
    name: 'never lets a lease lapse',
    claims: { 'settle.lease-lapses': /1 deliveries; 0 came/ },
    changes: { spec: (spec) => ({ ...spec, leaseMs: 3_600_000 }) },
  },
  {
    name: 'counts no deliveries',
    claims: {
      'settle.poison-process': /./,
      'settle.ack-after-handler': /deliveries/,
    },
    changes: { delivery: (delivery) => altered(delivery, { deliveries: 1 }) },
  },
  {
    name: 'acks what is handed back unstarted',
    claims: {
      'settle.stop-half-batch': /[0-9]+ deliveries; [0-9]+ came/,
      'lifecycle.abort-subscription': /deliveries/,
      'settle.by-hand': /messages that were not acked/,
      'lifecycle.close-dead-letters-nothing': /all 20 messages/,
    },
    changes: {
      subscription: ({ member }) => ({
        release(deliveries) {
          for (const delivery of deliveries) member.ack(delivery)
        },
      }),
    },
  },
  {
    name: 'counts an attempt for what is handed back unstarted',
    claims: { 'settle.stop-half-batch': /attempts of what was handed back/ },
    changes: {
      subscription: ({ member }) => ({
        async release(deliveries) {
          for (const delivery of deliveries) {
            const attempt = delivery.attempt + 1
            await member.retry(delivery, { delayMs: 0, attempt, firstFailedAt: 1, hold: false })
          }
        },
      }),
    },
  },
  {
    name: 'ignores how many deliveries were asked for',
    claims: { 'load.prefetch': /27 of 30/ },
    changes: { spec: (spec) => ({ ...spec, window: spec.window * 1000 }) },
  },
  {
    name: 'hands out one delivery at a time',
    claims: {
      'load.overlap': /16 handlers at once/,
      'order.slow-key': /the other keys/,
    },
    changes: { spec: (spec) => ({ ...spec, window: 1 }) },
  },
  {
    name: 'delivers nothing after a reconnect',
    claims: {
      'connection.cut-while-consuming': /"lost":[1-9]/,
      'settle.ack-is-final-after-cut': /the message after the cut/,
      'connection.topology-recreated': /a message after the topology was deleted/,
      'connection.restarts-under-load': /"lost":[1-9]/,
    },
    changes: {
      sink({ sink, connection }) {
        let down = false
        connection.onDown(() => {
          down = true
        })
        return {
          deliver(batch) {
            if (!down) sink.deliver(batch)
          },
        } satisfies Partial<Sink>
      },
    },
  },
  {
    name: 'can settle nothing once its intake stopped',
    claims: { 'lifecycle.close-lets-finish': /./ },
    changes: {
      subscription({ member }) {
        let stopped = false
        return {
          stop() {
            stopped = true
            return member.stop()
          },
          ack: (delivery) => (stopped ? true : member.ack(delivery)),
        }
      },
    },
  },
  {
    name: 'dead-letters what it holds when it closes',
    claims: { 'lifecycle.close-dead-letters-nothing': /./ },
    changes: {
      sink: ({ sink }) => ({
        deliver(batch) {
          for (const delivery of batch) held.add(delivery)
          sink.deliver(batch)
        },
      }),
      subscription: ({ member, spec }) => ({
        async close() {
          for (const delivery of held) {
            if (delivery.message.topic === spec.topic) member.deadLetter(delivery, closing(spec))
          }
          await member.close()
        },
      }),
    },
  },
  {
    name: 'loses what arrives while it is paused',
    claims: { 'lifecycle.pause-and-resume': /11 deliveries/ },
    changes: {
      sink: ({ sink, member }) => ({
        deliver(batch) {
          if (!paused.has(member)) return sink.deliver(batch)
          for (const delivery of batch) member.ack(delivery)
        },
      }),
      subscription: ({ member }) => ({
        pause: () => void paused.add(member),
        resume: () => void paused.delete(member),
      }),
    },
  },
]

const held = new Set<IncomingDelivery>()
const paused = new Set<unknown>()

function closing({ topic, group }: { topic: string; group: string }) {
  return {
    reason: 'requested',
    errorName: 'Error',
    errorMessage: 'closing',
    errorStack: '',
    attempts: 1,
    topic,
    group,
    firstFailedAt: 1,
    lastFailedAt: 1,
  } as const
}

/** Another view of a delivery. */
export function altered(
  delivery: IncomingDelivery,
  changes: Partial<IncomingDelivery>,
): IncomingDelivery {
  const { message, attempt, deliveries, firstFailedAt } = delivery
  return { message, attempt, deliveries, firstFailedAt, ...changes }
}
