import { RetryLaterError } from '@longshore/core'
import { check } from '../check.js'
import { ensure, same } from '../expect.js'
import { gate } from '../until.js'
import { numbered, quickRetry } from './shared.js'

const entry = (n: number) => ({ producer: 'p', key: 'k', n })

export const settle = [
  check({
    id: 'settle.ack-is-final',
    title: 'What was acked never returns to a new connection',
    area: 'settle',
    ref: 21,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const first = await ctx.connect()
      const before = await ctx.collect(first, to, { group, concurrency: 5 })
      const publisher = await ctx.connect()
      for (let n = 0; n < 20; n++) await publisher.publish(to, entry(n))
      await before.has(20)
      same((await first.close()).drained, true, 'drained')
      const second = await ctx.connect()
      const after = await ctx.collect(second, to, { group, concurrency: 5 })
      await publisher.publish(to, entry(20))
      await after.has(1)
      same(
        after.seen.map((one) => one.payload.n),
        [20],
        'seen after all others were acked',
      )
    },
  }),

  check({
    id: 'settle.ack-is-final-after-cut',
    title: 'What was acked never returns after a reconnect',
    area: 'settle',
    ref: 21,
    schedule: 'alone',
    timeoutMs: 60_000,
    needs: { hooks: ['severConnections'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const bus = await ctx.connect()
      let handled = 0
      ctx.defer(bus.on('handled', () => handled++))
      const { seen } = await ctx.collect(bus, to, { group: ctx.group(), concurrency: 5 })
      for (let n = 0; n < 20; n++) await bus.publish(to, entry(n))
      await ctx.until(
        () => handled >= 20,
        () => `20 acks; ${handled} were done`,
      )
      for (let round = 0; round < 3; round++) {
        await ctx.hooks.severConnections()
        await bus.publish(to, entry(20 + round))
        await ctx.until(
          () => seen.some((one) => one.payload.n === 20 + round),
          'the message after the cut',
          20_000,
        )
      }
      const old = seen.filter((one) => one.payload.n < 20)
      ensure(old.length === 20, `expected 20 deliveries of 20 acked messages, saw ${old.length}`)
    },
  }),

  check({
    id: 'settle.ack-after-handler',
    title: 'A message is acked only after its handler is done: a crash in between brings it back',
    area: 'settle',
    ref: 28,
    noLoss: true,
    needs: { anyHook: ['program', 'crash'] },
    timeoutMs: 60_000,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const spec = { topic: to.name, group, role: 'consume', behaviour: 'hold' } as const
      const victim = await ctx.member({ ...spec, options: { concurrency: 1 } })
      const bus = await ctx.connect()
      await bus.publish(to, entry(0))
      await ctx.until(
        () => victim.started.length >= 1,
        () => `the handler to begin ${victim.errors.join()}`,
      )
      await victim.kill()
      const { seen } = await ctx.collect(bus, to, { group })
      await ctx.until(() => seen.length > 0, 'the unacked message to come back', 45_000)
      same(seen[0]!.message.id, victim.started[0]!.id, 'id of what came back')
      same(seen[0]!.attempt, 1, 'attempt (a crash is no attempt)')
      if (ctx.capabilities.deliveryCount) same(seen[0]!.deliveries, 2, 'deliveries')
    },
  }),

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

  check({
    id: 'settle.twice',
    title: 'Settling twice is harmless; the second returns false',
    area: 'settle',
    ref: 26,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const results: Record<string, boolean[]> = {}
      const options = { group: ctx.group(), retry: quickRetry }
      const { seen } = await ctx.collect(bus, to, options, async (one, context) => {
        const { attempt } = context
        const all = [() => context.ack(), () => context.retry(10), () => context.deadLetter()]
        const first = one.n === 3 ? 0 : one.n
        if (attempt > 1) return
        const told = [await all[first]!(), context.settled]
        for (const again of all) told.push(await again())
        results[one.n] = told
        // What is settled by hand stays so, whatever the handler does.
        if (one.n === 3) throw new Error('after an ack')
      })
      for (let n = 0; n < 4; n++) await bus.publish(to, entry(n))
      await bus.publish(to, entry(4)).catch(() => {})
      await ctx.until(
        () => Object.keys(results).length === 4 && seen.some((one) => one.attempt === 2),
        () => `4 messages and a retry; saw ${seen.length} deliveries`,
      )
      const expected = [true, true, false, false, false]
      for (let n = 0; n < 4; n++) same(results[n], expected, `settling message ${n} four times`)
      await bus.publish(to, entry(5)).catch(() => {})
      await ctx.until(() => seen.some((one) => one.payload.n === 5), 'the message after them')
      const times = [0, 1, 2, 3].map((n) => seen.filter((one) => one.payload.n === n).length)
      same(times, [1, 2, 1, 1], 'deliveries of those acked, retried, dead-lettered, acked')
      if (ctx.capabilities.deadLetters) {
        same(await bus.deadLetters(to.name, options.group).count(), 1, 'dead letters')
      }
    },
  }),

  check({
    id: 'settle.by-hand',
    title: 'A consume loop settles by hand; what the loop leaves unsettled goes back',
    area: 'settle',
    ref: 26,
    noLoss: true,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const bus = await ctx.connect()
      const consumption = bus.consume<unknown, ReturnType<typeof entry>>(to.name, {
        group,
        prefetch: 10,
        concurrency: 10,
      })
      const taken: number[] = []
      const loop = (async () => {
        for await (const delivery of consumption) {
          taken.push(delivery.payload.n)
          if (taken.length === 6) break
          same(await delivery.ack(), true, `ack of ${delivery.payload.n}`)
          same(await delivery.ack(), false, `second ack of ${delivery.payload.n}`)
        }
      })()
      loop.catch(() => {})
      const publisher = await ctx.connect()
      // The loop joins its group when it begins to wait.
      await ctx.until(
        () => bus.health().subscriptions.some((one) => one.group === group),
        'the loop to join its group',
      )
      await ctx.until(async () => {
        await publisher.publish(to, { producer: 'probe', key: 'k', n: -1 })
        return taken.length > 0
      }, 'the loop to get a message')
      for (let n = 0; n < 10; n++) await publisher.publish(to, entry(n))
      await ctx.within(loop, 'the loop to end')
      await consumption.close()
      const acked = new Set(taken.slice(0, 5).filter((n) => n >= 0))
      const { seen } = await ctx.collect(bus, to, { group, concurrency: 10 })
      const left = () => new Set(seen.map((one) => one.payload.n).filter((n) => n >= 0))
      await ctx.until(
        () => left().size === 10 - acked.size,
        () => `${10 - acked.size} messages that were not acked; saw ${[...left()]}`,
      )
      same(
        [...left()].filter((n) => acked.has(n)),
        [],
        'acked messages that came back',
      )
    },
  }),

  check({
    id: 'settle.redelivery-context',
    title: 'A redelivery has a live signal and the original headers',
    area: 'settle',
    ref: 31,
    noLoss: true,
    needs: { anyHook: ['program', 'crash'] },
    timeoutMs: 60_000,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const spec = { topic: to.name, group, role: 'consume', behaviour: 'hold' } as const
      const victim = await ctx.member(spec)
      const bus = await ctx.connect()
      const headers = { tenant: 'acme' }
      const { id } = await bus.publish(to, entry(0), { headers, causationId: 'cause' })
      await ctx.until(() => victim.started.length > 0, 'the victim to begin')
      await victim.kill()
      const aborted: boolean[] = []
      const options = { group, retry: quickRetry }
      const { seen, has } = await ctx.collect(bus, to, options, (_, context) => {
        aborted.push(context.signal.aborted)
        if (context.attempt === 1) throw new Error('once more')
      })
      await has(2, 45_000)
      same(aborted, [false, false], 'signals aborted when their handlers began')
      for (const one of seen) {
        same(one.message.id, id, 'id')
        same({ ...one.message.headers }, headers, 'headers')
        same(one.message.causationId, 'cause', 'causation id')
      }
    },
  }),

  check({
    id: 'settle.after-revocation',
    title: 'A delivery that the network took away can no longer be settled, and its signal aborts',
    area: 'settle',
    ref: 26,
    schedule: 'alone',
    timeoutMs: 60_000,
    needs: { hooks: ['severConnections'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const release = gate()
      ctx.defer(release.open)
      const settled: boolean[] = []
      const signals: AbortSignal[] = []
      const options = { group: ctx.group(), concurrency: 2 }
      const { seen } = await ctx.collect(bus, to, options, async (_, context) => {
        signals.push(context.signal)
        if (signals.length > 1) return
        await release.opened
        settled.push(await context.ack())
      })
      await bus.publish(to, entry(0))
      await ctx.until(() => seen.length === 1, 'the first delivery')
      await ctx.hooks.severConnections()
      await ctx.until(() => seen.length >= 2, 'the redelivery', 45_000)
      ensure(signals[0]!.aborted, 'the signal of the delivery that was taken away did not abort')
      release.open()
      await ctx.until(() => settled.length === 1, 'the first handler to settle')
      same(settled, [false], 'settling what was taken away')
      await bus.publish(to, entry(1))
      await ctx.until(() => seen.some((one) => one.payload.n === 1), 'the message after it')
      same(seen.filter((one) => one.payload.n === 0).length, 2, 'deliveries of the first message')
    },
  }),
]
