import { check } from '../check.js'
import type { CheckContext } from '../context.js'
import { ensure, rejects, same } from '../expect.js'
import { entries, numbered, numbersOf } from './shared.js'

const needs = { capabilities: ['delay'] } as const

/** For drivers without delays: they must say so, and publish nothing. */
async function unsupported(ctx: CheckContext): Promise<void> {
  const bus = await ctx.connect()
  await rejects(
    () => bus.publish(ctx.topic(), 'later', { delay: 1000 }),
    'LONGSHORE_UNSUPPORTED',
    'publishing with a delay',
  )
}

export const delay = [
  check({
    id: 'delay.never-early',
    title: 'A delayed publish is never early, and late by at most max(250 ms, 10 %)',
    area: 'delay',
    ref: 65,
    noLoss: true,
    schedule: 'quiet',
    needs,
    otherwise: unsupported,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group(), concurrency: 10 })
      const delays = [0, 60, 400, 1000, 2600]
      const begun: number[] = []
      const confirmed: number[] = []
      for (const [n, ms] of delays.entries()) {
        begun[n] = Date.now()
        await bus.publish(to, { producer: 'p', key: 'k', n }, { delay: ms })
        confirmed[n] = Date.now()
      }
      await has(delays.length, 20_000)
      const late = seen.map((one) => one.at - confirmed[one.payload.n]! - delays[one.payload.n]!)
      ctx.count({ latest: Math.max(...late) })
      for (const one of seen) {
        const { n } = one.payload
        const ms = delays[n]!
        const bound = ms + Math.max(ctx.tolerances.lateMs, ms / 10)
        ensure(one.at - begun[n]! >= ms, `${ms} ms came ${ms - one.at + begun[n]!} ms early`)
        ensure(one.at - confirmed[n]! <= bound, `${ms} ms came after ${one.at - confirmed[n]!} ms`)
      }
      same(seen.length, delays.length, 'deliveries')
    },
  }),

  check({
    id: 'delay.at',
    title: 'A message for a time comes no earlier than then; for a past time at once',
    area: 'delay',
    ref: 65,
    schedule: 'quiet',
    needs,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group(), concurrency: 10 })
      const at = new Date(Date.now() + 700)
      await bus.publish(to, { producer: 'p', key: 'k', n: 0 }, { at })
      const past = new Date(Date.now() - 60_000)
      await bus.publish(to, { producer: 'p', key: 'k', n: 1 }, { at: past })
      await has(2)
      same(numbersOf(seen), [1, 0], 'seen')
      ensure(seen[1]!.at >= at.getTime(), `it came ${at.getTime() - seen[1]!.at} ms early`)
    },
  }),

  check({
    id: 'delay.short-not-behind-long',
    title: 'A short delay is not stuck behind a long one',
    area: 'delay',
    ref: 65,
    schedule: 'quiet',
    needs,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group(), concurrency: 10 })
      await bus.publish(to, { producer: 'p', key: 'k', n: 0 }, { delay: '5s' })
      await bus.publish(to, { producer: 'p', key: 'k', n: 1 }, { delay: 300 })
      const confirmed = Date.now()
      await has(1)
      same(numbersOf(seen), [1], 'first')
      const bound = 300 + ctx.tolerances.lateMs
      const took = seen[0]!.at - confirmed
      ensure(
        took <= bound,
        `a delay of 300 ms behind one of 5 s took ${took} ms (at most ${bound})`,
      )
    },
  }),

  check({
    id: 'delay.keeps-message',
    title: 'A delayed message keeps id, key, headers and body, and reaches every group',
    area: 'delay',
    ref: 65,
    noLoss: true,
    needs,
    otherwise: unsupported,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const one = await ctx.collect(bus, to, { group: ctx.group('one') })
      const two = ctx.capabilities.groups
        ? await ctx.collect(bus, to, { group: ctx.group('two') })
        : one
      const id = `${ctx.runId}-delayed`
      const headers = { tenant: 'acme', 'X-Empty': '' }
      const entry = { producer: 'p', key: 'k', n: 0 }
      const options = { id, headers, delay: 200, correlationId: 'c' }
      same((await bus.publish(to, entry, options)).id, id, 'id of the publish')
      for (const { seen, has } of [one, two]) {
        await has(1)
        const { message, payload, attempt } = seen[0]!
        same(payload, entry, 'body')
        same(message.id, id, 'id')
        same(message.key, 'k', 'key')
        same({ ...message.headers }, headers, 'headers')
        same(message.correlationId, 'c', 'correlation id')
        same(attempt, 1, 'attempt')
      }
    },
  }),

  check({
    id: 'delay.survives-restart',
    title: 'A delayed publish survives a broker restart, and its publisher',
    area: 'delay',
    ref: 65,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 90_000,
    needs: { capabilities: ['delay'], hooks: ['restart'] },
    otherwise: unsupported,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const consumer = await ctx.connect()
      const { seen, has } = await ctx.collect(consumer, to, { group: ctx.group(), concurrency: 10 })
      const publisher = await ctx.connect()
      const begun = Date.now()
      for (const entry of entries(10)) await publisher.publish(to, entry, { delay: 1500 })
      await publisher.close()
      await ctx.hooks.restart()
      await has(10, 45_000)
      same(
        [...new Set(numbersOf(seen))].sort(),
        entries(10).map((e) => e.n),
        'seen',
      )
      const earliest = Math.min(...seen.map((one) => one.at)) - begun
      ensure(earliest >= 1500, `a delay of 1500 ms ended after ${earliest} ms`)
    },
  }),

  check({
    id: 'delay.cancel',
    title: 'A delayed message can be taken back, once, and only until it is delivered',
    area: 'delay',
    ref: 65,
    needs: { capabilities: ['delay', 'cancelDelay'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      const { id } = await bus.publish(to, { producer: 'p', key: 'k', n: 0 }, { delay: 500 })
      same(await bus.cancelDelayed(to.name, id), true, 'cancelling')
      same(await bus.cancelDelayed(to.name, id), false, 'cancelling again')
      const later = await bus.publish(to, { producer: 'p', key: 'k', n: 1 }, { delay: 700 })
      await has(1)
      same(numbersOf(seen), [1], 'seen')
      same(await bus.cancelDelayed(to.name, later.id), false, 'cancelling what was delivered')
    },
  }),

  check({
    id: 'delay.too-long',
    title: 'A delay above the declared maximum is refused',
    area: 'delay',
    ref: 65,
    needs,
    async run(ctx) {
      const longest = ctx.capabilities.delay
      if (!Number.isFinite(longest)) ctx.skip('the driver declares no maximum')
      const bus = await ctx.connect()
      await rejects(
        () => bus.publish(ctx.topic(), 'late', { delay: longest + 1000 }),
        ['LONGSHORE_UNSUPPORTED', 'LONGSHORE_OPTION'],
        `a delay of more than ${longest} ms`,
      )
    },
  }),
]
