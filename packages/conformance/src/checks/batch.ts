import type { SubscribeBatchOptions } from '@longshore/core'
import { check } from '../check.js'
import { ensure, same } from '../expect.js'
import type { Entry } from '../ledger.js'
import { entries, numbered, publishAll, quickRetry } from './shared.js'

const twice = { ...quickRetry, attempts: 2 }

/** A handler that counts what it gets and fails all of it. */
function failing(times: Map<number, number>) {
  return (payloads: readonly Entry[]) => {
    for (const { n } of payloads) times.set(n, (times.get(n) ?? 0) + 1)
    throw new Error('the whole batch')
  }
}

export const batch = [
  check({
    id: 'batch.size',
    title: 'Batches are no larger than their size, and nothing is missing',
    area: 'batch',
    ref: 45,
    noLoss: true,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const sizes: number[] = []
      const seen = new Set<number>()
      const options = { group: ctx.group(), batchSize: 10, batchWait: 300 }
      await bus.subscribeBatch(to, options, (payloads) => {
        sizes.push(payloads.length)
        for (const { n } of payloads) seen.add(n)
      })
      same(await publishAll(bus, to, entries(35)), [], 'failed publishes')
      await ctx.until(
        () => seen.size === 35,
        () => `35 messages; ${seen.size} came in batches of ${sizes}`,
      )
      ensure(Math.max(...sizes) <= 10, `batches of ${sizes}, with batchSize 10`)
      ensure(sizes.includes(10), `no full batch: ${sizes}`)
      same(
        sizes.reduce((sum, size) => sum + size, 0),
        35,
        'messages in all batches',
      )
      ctx.count({ batches: sizes.length })
    },
  }),

  check({
    id: 'batch.wait',
    title: 'A batch that does not fill comes when its time is up',
    area: 'batch',
    ref: 45,
    schedule: 'quiet',
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const batches: { size: number; at: number }[] = []
      const options = { group: ctx.group(), batchSize: 100, batchWait: 400 }
      await bus.subscribeBatch(to, options, (payloads) => {
        batches.push({ size: payloads.length, at: Date.now() })
      })
      const begun = Date.now()
      same(await publishAll(bus, to, entries(3)), [], 'failed publishes')
      await ctx.until(() => batches.length > 0, 'the batch')
      const took = batches[0]!.at - begun
      same(
        batches.map((one) => one.size),
        [3],
        'sizes of batches',
      )
      const bound = 400 + ctx.tolerances.lateMs
      ensure(took >= 390 && took <= bound, `the batch came after ${took} ms, not 400 to ${bound}`)
    },
  }),

  check({
    id: 'batch.partial-failure',
    title: 'When some of a batch fail, only they are retried',
    area: 'batch',
    ref: 45,
    noLoss: true,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const times = new Map<number, number>()
      const options: SubscribeBatchOptions = {
        group: ctx.group(),
        batchSize: 10,
        batchWait: 100,
        retry: quickRetry,
      }
      await bus.subscribeBatch(to, options, (payloads, context) => {
        payloads.forEach(({ n }, i) => {
          const time = (times.get(n) ?? 0) + 1
          times.set(n, time)
          if (n % 3 === 0 && time === 1) context.fail(i, new Error('once'))
        })
      })
      same(await publishAll(bus, to, entries(10)), [], 'failed publishes')
      const failed = [0, 3, 6, 9]
      await ctx.until(
        () => times.size === 10 && failed.every((n) => times.get(n)! >= 2),
        () => `10 messages and 4 retries; times are ${[...times]}`,
      )
      await bus.publish(to, { producer: 'p', key: 'k', n: 10 })
      await ctx.until(() => times.has(10), 'the message after them')
      for (const [n, time] of times) {
        same(time, failed.includes(n) ? 2 : 1, `times that message ${n} came`)
      }
    },
  }),

  check({
    id: 'batch.throwing',
    title:
      'A throwing batch handler fails all that it did not mark, and each is dead-lettered after its attempts',
    area: 'batch',
    ref: 45,
    noLoss: true,
    needs: { capabilities: ['deadLetters'] },
    async otherwise(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const times = new Map<number, number>()
      let dead = 0
      ctx.defer(bus.on('dead-lettered', () => dead++))
      const options = { group: ctx.group(), batchSize: 4, batchWait: 50, retry: twice }
      await bus.subscribeBatch(to, options, failing(times))
      same(await publishAll(bus, to, entries(8)), [], 'failed publishes')
      await ctx.until(
        () => dead >= 8,
        () => `8 dead letters; there were ${dead}, times are ${[...times]}`,
      )
      same([...times.values()], Array(8).fill(2), 'attempts')
    },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const times = new Map<number, number>()
      const options = { group, batchSize: 4, batchWait: 50, retry: twice }
      await bus.subscribeBatch(to, options, failing(times))
      same(await publishAll(bus, to, entries(8)), [], 'failed publishes')
      const letters = bus.deadLetters(to.name, group)
      await ctx.until(
        async () => (await letters.count()) >= 8,
        () => `8 dead letters; times are ${[...times]}`,
      )
      same([...times.values()], Array(8).fill(2), 'attempts')
      same(await letters.count(), 8, 'dead letters')
    },
  }),
]
