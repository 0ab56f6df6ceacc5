import { check } from '../check.js'
import { ensure, same } from '../expect.js'
import { numbered, numbersOf, publishRouted, quickRetry, settleDown } from './shared.js'

/** What happens to a routed message beside being published and delivered. */
export const routedFlows = [
  check({
    id: 'routing.retry',
    title: 'Retries and redriven dead letters come back to the group, and to no other',
    area: 'routing',
    ref: 0,
    needs: { capabilities: ['routing'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const all = await ctx.collect(bus, to, { group: ctx.group('all') })
      let healthy = false
      const options = { group, routes: ['a'], retry: { ...quickRetry, attempts: 2 } }
      const { seen, has } = await ctx.collect(bus, to, options, () => {
        if (!healthy) throw new Error('not yet')
      })
      await publishRouted(bus, to, ['a', 'b'])
      await has(2)
      same(
        seen.map(({ payload, attempt }) => [payload.n, attempt]),
        [
          [0, 1],
          [0, 2],
        ],
        'attempts',
      )
      if (ctx.capabilities.deadLetters) {
        const letters = bus.deadLetters(to, group)
        await ctx.until(async () => (await letters.count()) === 1, 'one dead letter')
        healthy = true
        same(await letters.redrive(), 1, 'redriven')
        await has(3)
        same(seen[2]?.payload.n, 0, 'the redriven message')
      }
      await settleDown(ctx)
      same(numbersOf(all.seen).sort(), [0, 1], 'seen by the group without routes')
    },
  }),

  check({
    id: 'routing.delay',
    title: 'A delayed message keeps its route',
    area: 'routing',
    ref: 0,
    needs: { capabilities: ['routing', 'delay'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const a = await ctx.collect(bus, to, { group: ctx.group('a'), routes: ['a'] })
      const b = await ctx.collect(bus, to, { group: ctx.group('b'), routes: ['b'] })
      await bus.publish(to, { producer: 'p', key: 'k', n: 0 }, { route: 'a', delay: 100 })
      await bus.publish(to, { producer: 'p', key: 'k', n: 1 }, { route: 'b', delay: 200 })
      await a.has(1)
      await b.has(1)
      same([numbersOf(a.seen), numbersOf(b.seen)], [[0], [1]], 'seen by the groups')
    },
  }),

  check({
    id: 'routing.key-order',
    title: 'A group with routes keeps the order of each key of what it gets',
    area: 'routing',
    ref: 0,
    needs: { capabilities: ['routing', 'order across members'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const { seen, has } = await ctx.collect(
        bus,
        to,
        { group, routes: ['a', 'b'], order: 'key', concurrency: 10, retry: quickRetry },
        (entry, { attempt }) => {
          if (entry.n % 5 === 0 && attempt === 1) throw new Error('once more')
        },
      )
      const routes = ['a', 'b', 'c'] as const
      for (let n = 0; n < 60; n++) {
        const entry = { producer: 'p', key: `k${n % 4}`, n }
        await bus.publish(to, entry, { route: routes[n % 3]! })
      }
      // 40 of them have routes a and b; 8 of these fail at first.
      await has(48)
      const passed = seen.filter(({ payload, attempt }) => payload.n % 5 > 0 || attempt > 1)
      for (const key of ['k0', 'k1', 'k2', 'k3']) {
        const got = numbersOf(passed.filter(({ payload }) => payload.key === key))
        ensure(
          got.every((n, i) => i === 0 || got[i - 1]! < n),
          `${key} came as ${got}`,
        )
      }
      same(
        numbersOf(passed).filter((n) => n % 3 === 2),
        [],
        'messages of route c',
      )
    },
  }),
]
