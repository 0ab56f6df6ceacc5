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
      const release = gate()
      ctx.defer(release.open)
      const window = 5
      const options = { group: ctx.group(), concurrency: window, prefetch: window }
      const { seen, has } = await ctx.collect(bus, to, options, ({ n }) => {
        if (n >= 20) return release.opened
      })
      for (let n = 0; n < 20; n++) await bus.publish(to, entry(n))
      await ctx.until(
        () => handled >= 20,
        () => `20 acks; ${handled} were done`,
      )
      // Acks may be under way still. With the whole window in use by others, the broker has them.
      for (let n = 20; n < 20 + window; n++) await bus.publish(to, entry(n))
      await has(20 + window)
      release.open()
      for (let round = 0; round < 3; round++) {
        await ctx.hooks.severConnections()
        await bus.publish(to, entry(30 + round))
        await ctx.until(
          () => seen.some((one) => one.payload.n === 30 + round),
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
