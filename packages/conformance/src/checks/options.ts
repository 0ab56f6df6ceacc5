import { check } from '../check.js'
import { ensure, same } from '../expect.js'
import { createGroup, numbered, numbersOf } from './shared.js'

export const options = [
  check({
    id: 'options.priority',
    title: 'Of what waits, higher priorities come first',
    area: 'options',
    ref: 0,
    needs: { capabilities: ['priority'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const group = ctx.group()
      await createGroup(ctx, to, group)
      const high = ctx.capabilities.priority - 1
      for (let n = 0; n < 10; n++) {
        const entry = { producer: 'p', key: `k${n}`, n }
        await bus.publish(to, entry, { priority: n % 2 === 0 ? 0 : high })
      }
      const { seen, has } = await ctx.collect(bus, to, { group, concurrency: 1, prefetch: 1 })
      await has(10)
      same(numbersOf(seen), [1, 3, 5, 7, 9, 0, 2, 4, 6, 8], 'handled')
    },
  }),

  check({
    id: 'options.ttl',
    title: 'What was not delivered within its ttl is dropped; the rest is not',
    area: 'options',
    ref: 0,
    needs: { capabilities: ['ttl'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const group = ctx.group()
      await createGroup(ctx, to, group)
      await bus.publish(to, { producer: 'p', key: 'k', n: 0 }, { ttl: 150 })
      await bus.publish(to, { producer: 'p', key: 'k', n: 1 }, { ttl: '1h' })
      await bus.publish(to, { producer: 'p', key: 'k', n: 2 })
      const gone = Date.now() + 500
      await ctx.until(() => Date.now() >= gone, 'the first ttl to pass')
      const { seen, has } = await ctx.collect(bus, to, { group })
      await has(2)
      same(numbersOf(seen), [1, 2], 'delivered')
    },
  }),

  check({
    id: 'options.admin',
    title: 'Topics and groups can be created, counted and deleted',
    area: 'options',
    ref: 0,
    needs: { capabilities: ['admin'] },
    async run(ctx) {
      const bus = await ctx.connect({ autoCreate: false })
      const to = numbered(ctx.topic())
      const group = ctx.group()
      await bus.admin.createTopic(to.name)
      await bus.admin.createGroup(to.name, group, { order: 'none', from: 'latest' })
      for (let n = 0; n < 3; n++) await bus.publish(to, { producer: 'p', key: 'k', n })
      await ctx.until(
        async () => (await bus.admin.stats(to.name, group)).ready === 3,
        '3 messages to be counted as ready',
      )
      const { has } = await ctx.collect(bus, to, { group })
      await has(3)
      await ctx.until(async () => {
        const { ready, delayed = 0, inFlight = 0, dead } = await bus.admin.stats(to.name, group)
        return ready + delayed + inFlight + dead === 0
      }, 'nothing to be left in the group')
      const other = ctx.group('deleted')
      await bus.admin.createGroup(to.name, other, { order: 'none', from: 'latest' })
      await bus.publish(to, { producer: 'p', key: 'k', n: 3 })
      await bus.admin.deleteGroup(to.name, other)
      await bus.admin.createGroup(to.name, other, { order: 'none', from: 'latest' })
      const { ready } = await bus.admin.stats(to.name, other)
      ensure(ready === 0, `${ready} messages in a group that was deleted and created again`)
    },
  }),
]
