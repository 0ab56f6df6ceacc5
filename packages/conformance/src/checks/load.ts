import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { check } from '../check.js'
import { ensure, same } from '../expect.js'
import { gate } from '../until.js'
import { bytes, createGroup, entries, numbered, publishAll } from './shared.js'

/** Bytes that the process's JavaScript really holds, its buffers included: garbage does not count. */
function bytesHeld(): number {
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

let collector: (() => void) | undefined

function collectGarbage(): void {
  if (collector === undefined) {
    setFlagsFromString('--expose-gc')
    collector = runInNewContext('gc') as () => void
  }
  collector()
}

export const load = [
  check({
    id: 'load.concurrency-cap',
    title: 'Handlers at once never exceed the concurrency',
    area: 'load',
    ref: 41,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      let running = 0
      let most = 0
      const options = { group: ctx.group(), concurrency: 5, prefetch: 50 }
      const { has } = await ctx.collect(bus, to, options, async () => {
        running++
        most = Math.max(most, running)
        await new Promise((resolve) => setTimeout(resolve, 2))
        running--
      })
      same(await publishAll(bus, to, entries(200)), [], 'failed publishes')
      await has(200)
      ctx.count({ most })
      ensure(most <= 5, `${most} handlers ran at once, with concurrency 5`)
    },
  }),

  check({
    id: 'load.overlap',
    title: 'Concurrency N does overlap N handlers',
    area: 'load',
    ref: 42,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const release = gate()
      ctx.defer(release.open)
      let running = 0
      const options = { group: ctx.group(), concurrency: 16 }
      await ctx.collect(bus, to, options, async () => {
        running++
        await release.opened
      })
      same(await publishAll(bus, to, entries(40)), [], 'failed publishes')
      await ctx.until(
        () => running >= 16,
        () => `16 handlers at once; ${running} run`,
      )
      same(running, 16, 'handlers at once')
      release.open()
      await ctx.until(
        () => running === 40,
        () => `the rest; ${running} of 40 ran`,
      )
    },
  }),

  check({
    id: 'load.prefetch',
    title: 'A stuck member holds no more than its prefetch; the rest goes to another',
    area: 'load',
    ref: 41,
    noLoss: true,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const release = gate()
      ctx.defer(release.open)
      const stuck = await ctx.connect()
      const options = { group, concurrency: 1, prefetch: 3 }
      const first = await ctx.collect(stuck, to, options, () => release.opened)
      const publisher = await ctx.connect()
      same(await publishAll(publisher, to, entries(30)), [], 'failed publishes')
      await first.has(1)
      const other = await ctx.connect()
      const second = await ctx.collect(other, to, { group, concurrency: 5 })
      await ctx.until(
        () => second.seen.length >= 27,
        () => `27 of 30 messages past a member with prefetch 3; ${second.seen.length} came`,
      )
      release.open()
      const total = () => new Set([...first.seen, ...second.seen].map((one) => one.payload.n)).size
      await ctx.until(
        () => total() === 30,
        () => `all 30 messages; ${total()} came`,
      )
      same(first.seen.length + second.seen.length, 30, 'deliveries')
    },
  }),

  check({
    id: 'load.backlog',
    title:
      'A slow consumer with a backlog of 10,000: the heap stays under its bound, all is consumed',
    area: 'load',
    ref: 44,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 120_000,
    async run(ctx) {
      const to = bytes(ctx.topic())
      const group = ctx.group()
      const count = 10_000
      await createGroup(ctx, to, group)
      const publisher = await ctx.connect()
      const body = new Uint8Array(16 * 1024).fill(7)
      for (let at = 0; at < count; at += 250) {
        const page = Array.from({ length: 250 }, (_, i) => ({
          payload: body,
          id: `${ctx.runId}-${at + i}`,
        }))
        const outcomes = await publisher.publishBatch(to, page)
        same(outcomes.filter((one) => one.status !== 'confirmed').length, 0, 'not confirmed')
      }
      const before = bytesHeld()
      let peak = 0
      const ids = new Set<string>()
      let deliveries = 0
      const consumer = await ctx.connect()
      const options = { group, concurrency: 20 }
      await consumer.subscribe<Uint8Array, Uint8Array>(to, options, async (payload, context) => {
        await new Promise((resolve) => setImmediate(resolve))
        same(payload.length, body.length, 'length of a body')
        ids.add(context.message.id)
        if (++deliveries % 500 === 0) peak = Math.max(peak, bytesHeld() - before)
      })
      await ctx.until(
        () => ids.size >= count,
        () => `${count} messages; ${ids.size} came`,
        90_000,
      )
      ctx.count({ messages: ids.size, duplicates: deliveries - ids.size, peakBytes: peak })
      const bound = ctx.tolerances.heapBytes
      ensure(peak <= bound, `the heap grew by ${peak} bytes while consuming (at most ${bound})`)
    },
  }),
]
