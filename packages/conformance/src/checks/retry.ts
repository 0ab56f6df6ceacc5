import { RetryLaterError } from '@longshore/core'
import { check } from '../check.js'
import { ensure, same } from '../expect.js'
import { numbered, quickRetry } from './shared.js'

const entry = (n: number) => ({ producer: 'p', key: 'k', n })

export const retry = [
  check({
    id: 'settle.retry-increments',
    title: "A throwing handler is retried, 'attempt' rises; the next message is consumed meanwhile",
    area: 'settle',
    ref: 22,
    noLoss: true,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const retry = { attempts: 4, base: 300, factor: 1, jitter: 0 }
      const { seen } = await ctx.collect(bus, to, { group: ctx.group(), retry }, (one, context) => {
        if (one.n === 0 && context.attempt < 3) throw new Error(`attempt ${context.attempt}`)
      })
      const headers = { tenant: 'acme', 'X-Empty': '' }
      const { id } = await bus.publish(to, entry(0), { headers, correlationId: 'c1' })
      await ctx.until(() => seen.length > 0, 'the first attempt')
      await bus.publish(to, entry(1))
      const failing = () => seen.filter((one) => one.payload.n === 0)
      await ctx.until(
        () => failing().length >= 3,
        () => `3 attempts; ${failing().length} came`,
      )
      await bus.publish(to, entry(2))
      await ctx.until(() => seen.some((one) => one.payload.n === 2), 'the last message')
      same(
        failing().map((one) => one.attempt),
        [1, 2, 3],
        'attempts',
      )
      for (const one of failing()) {
        same(one.message.id, id, `id of attempt ${one.attempt}`)
        same({ ...one.message.headers }, headers, `headers of attempt ${one.attempt}`)
        same(one.message.key, 'k', `key of attempt ${one.attempt}`)
        same(one.message.correlationId, 'c1', `correlation of attempt ${one.attempt}`)
        same(one.message.timestamp, seen[0]!.message.timestamp, 'timestamp')
      }
      const order = seen.map((one) => `${one.payload.n}/${one.attempt}`)
      ensure(
        order.indexOf('1/1') < order.indexOf('0/2'),
        () => `message 1 should come while message 0 waits; saw ${order.join(' ')}`,
      )
    },
  }),

  check({
    id: 'settle.retry-delay',
    title: 'A delayed retry is never early, and late by at most max(250 ms, 10 %)',
    area: 'settle',
    ref: 23,
    schedule: 'quiet',
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const delays = [50, 300, 1000, 2600]
      const failed = new Map<number, number>()
      const late: number[] = []
      const wrong: string[] = []
      const options = { group: ctx.group(), concurrency: 10, retry: quickRetry }
      await ctx.collect(bus, to, options, (one, { attempt }) => {
        const delay = delays[one.n]!
        if (attempt === 1) {
          failed.set(one.n, Date.now())
          throw new RetryLaterError(delay)
        }
        const took = Date.now() - failed.get(one.n)!
        late.push(took - delay)
        const bound = Math.max(ctx.tolerances.lateMs, delay / 10)
        if (took < delay) wrong.push(`${delay} ms came ${delay - took} ms early`)
        if (took > delay + bound) wrong.push(`${delay} ms came ${took - delay} ms late`)
      })
      for (let n = 0; n < delays.length; n++) await bus.publish(to, entry(n))
      await ctx.until(
        () => late.length === delays.length,
        () => `${delays.length} second attempts; ${late.length} came`,
        20_000,
      )
      ctx.count({ latest: Math.max(...late), earliest: Math.min(...late) })
      same(wrong, [], 'retries at the wrong time')
    },
  }),

  check({
    id: 'settle.long-retry',
    title: 'Long retry delays hold back no other message and use up no in-flight limit',
    area: 'settle',
    ref: 24,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const options = { group: ctx.group(), concurrency: 2, prefetch: 4, retry: quickRetry }
      const { seen } = await ctx.collect(bus, to, options, (one) => {
        if (one.n < 20) throw new RetryLaterError('10m')
      })
      for (let n = 0; n < 40; n++) await bus.publish(to, entry(n))
      const done = () => seen.filter((one) => one.payload.n >= 20).length
      await ctx.until(
        () => done() >= 20,
        () => `20 messages behind 20 that wait 10 min; ${done()} came`,
      )
      same(
        seen.filter((one) => one.payload.n < 20).length,
        20,
        'deliveries of those that wait 10 min',
      )
    },
  }),

  check({
    id: 'settle.short-retry-behind-long',
    title: 'A short retry delay is not stuck behind a long one',
    area: 'settle',
    ref: 24,
    schedule: 'quiet',
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const options = { group: ctx.group(), concurrency: 2, retry: quickRetry }
      const { seen } = await ctx.collect(bus, to, options, (one, { attempt }) => {
        if (attempt === 1) throw new RetryLaterError(one.n === 0 ? '5s' : 200)
      })
      await bus.publish(to, entry(0))
      await ctx.until(() => seen.length === 1, 'the message that waits long')
      await bus.publish(to, entry(1))
      const second = () => seen.find((one) => one.payload.n === 1 && one.attempt === 2)
      await ctx.until(() => second() !== undefined, 'the short retry')
      const first = seen.find((one) => one.payload.n === 1)!
      const took = second()!.at - first.at
      const bound = 200 + ctx.tolerances.lateMs
      ensure(took <= bound, `a retry after 200 ms came after ${took} ms (at most ${bound})`)
    },
  }),
]
