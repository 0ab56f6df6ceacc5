import type { CircuitStore } from './core.js'
import type { Mutant } from './wrap.js'

export const order: readonly Mutant[] = [
  {
    name: 'delivers each batch backwards',
    claims: {
      'order.one-consumer': /order broken/,
      'order.ten-consumers': /order broken/,
      'order.lane-lost': /order broken/,
      'order.after-crash': /order broken/,
    },
    // Without partitions no batch has two messages of a key.
    options: { partitions: 4 },
    changes: {
      sink: ({ sink }) => ({ deliver: (batch) => sink.deliver([...batch].reverse()) }),
    },
  },
  {
    name: 'gives the messages of one key to several members at once',
    claims: {
      'order.ten-consumers': /order broken|ran at once/,
      'order.lane-lost': /order broken|ran at once/,
    },
    changes: { spec: (spec) => ({ ...spec, order: 'none' }) },
  },
  {
    name: 'lets later messages of a key pass one that waits for its retry',
    claims: {
      'order.key-through-retries': /the failing key/,
      'order.block-dead-letter': /handled/,
    },
    changes: {
      subscription: ({ member }) => ({
        retry: (delivery, request) => member.retry(delivery, { ...request, hold: false }),
      }),
    },
  },
  {
    name: 'holds the key back though it should not',
    claims: { 'order.skip': /done/ },
    changes: {
      subscription: ({ member }) => ({
        retry: (delivery, request) => member.retry(delivery, { ...request, hold: true }),
      }),
    },
  },
  {
    name: 'drops the parked messages',
    claims: { 'order.park': /6 dead letters/, 'order.park-across-members': /second dead letter/ },
    changes: {
      subscription: ({ member }) => ({
        deadLetter: (delivery, failure) =>
          failure.reason === 'parked' ? member.ack(delivery) : member.deadLetter(delivery, failure),
      }),
    },
  },
  {
    name: 'keeps circuits only in the member that opened them',
    claims: { 'order.park-across-members': /handled|second dead letter/ },
    changes: {
      driver: () => {
        const open = new Map<string, string>()
        const circuits: CircuitStore = {
          list: async () => [...open].map(([key, reason]) => ({ key, reason, ageMs: 0 })),
          open: async (_topic, _group, key, reason) => void open.set(key, reason),
          close: async (_topic, _group, key) => open.delete(key),
          watch: () => () => {},
        }
        return { circuits }
      },
    },
  },
  {
    name: 'loses the first message that a joining member gets',
    claims: {
      'order.lane-lost': /"lost":[1-9]/,
      'groups.join-and-leave': /"lost":[1-9]/,
      'lifecycle.abort-subscription': /deliveries/,
    },
    changes: {
      sink({ sink, member }) {
        let first = true
        return {
          deliver(batch) {
            const [lost, ...rest] = batch
            if (first && lost) {
              first = false
              member.ack(lost)
              sink.deliver(rest)
            } else {
              sink.deliver(batch)
            }
          },
        }
      },
    },
  },
]
