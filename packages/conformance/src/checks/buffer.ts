import type { BufferOptions, Bus } from '@longshore/core'
import { type ContextWith, check } from '../check.js'
import { codeOf, ensure, rejects, same } from '../expect.js'
import type { Entry } from '../ledger.js'
import { entries, numbered } from './shared.js'

type Context = ContextWith<'stopBroker' | 'startBroker'>

/** A bus with a small outgoing buffer whose broker is away, so that nothing leaves it. */
async function stalled(ctx: Context, policy: NonNullable<BufferOptions['policy']>, max: number) {
  const to = numbered(ctx.topic())
  const consumer = await ctx.connect()
  const { seen } = await ctx.collect(consumer, to, { group: ctx.group(), concurrency: 10 })
  const bus = await ctx.connect({ publish: { buffer: { max, policy }, deadline: '25s' } })
  // Known to work before it is cut off.
  await bus.publish(to, { producer: 'warm-up', key: 'k', n: 0 })
  await ctx.hooks.stopBroker()
  await ctx.until(() => bus.health().status === 'down', 'the bus to notice that its broker is gone')
  return { bus, to, seen: () => seen.filter((one) => one.payload.producer === 'p') }
}

/** What became of each: `pending`, `confirmed` or an error's code. */
function watch(promises: readonly Promise<unknown>[]): string[] {
  const states = promises.map(() => 'pending')
  promises.forEach((promise, i) => {
    promise.then(
      () => {
        states[i] = 'confirmed'
      },
      (error) => {
        states[i] = codeOf(error)
      },
    )
  })
  return states
}

function withinBounds(bus: Bus, max: number): void {
  const { messages } = bus.health().outgoing
  ensure(messages <= max, `${messages} messages in an outgoing buffer of ${max}`)
}

const needs = { hooks: ['stopBroker', 'startBroker'] } as const

function delivered(seen: readonly { payload: Entry }[]): number[] {
  return [...new Set(seen.map((one) => one.payload.n))].sort((a, b) => a - b)
}

export const buffer = [
  check({
    id: 'publish.buffer-block',
    title: "A full outgoing buffer with policy 'block': publish waits, and can be aborted",
    area: 'publish',
    ref: 20,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 60_000,
    needs,
    async run(ctx) {
      const { bus, to, seen } = await stalled(ctx, 'block', 5)
      const abort = new AbortController()
      const promises = entries(10).map((entry) =>
        bus.publish(to, entry, entry.n === 8 ? { signal: abort.signal } : {}),
      )
      const states = watch(promises)
      abort.abort()
      await ctx.within(
        rejects(promises[8]!, 'LONGSHORE_ABORTED', 'aborting a publish that waits for room'),
        'the aborted publish to end',
        3000,
      )
      withinBounds(bus, 5)
      same(bus.health().outgoing.saturated, true, 'health().outgoing.saturated')
      same(
        states.filter((state) => state === 'pending').length,
        9,
        'publishes that wait while the broker is away',
      )
      await ctx.hooks.startBroker()
      const others = promises.filter((_, n) => n !== 8)
      await ctx.within(Promise.all(others), 'the others to be confirmed', 25_000)
      await ctx.until(
        () => delivered(seen()).length >= 9,
        () => `9 messages; saw ${delivered(seen())}`,
      )
      same(delivered(seen()), [0, 1, 2, 3, 4, 5, 6, 7, 9], 'delivered')
    },
  }),

  check({
    id: 'publish.buffer-drop-newest',
    title: "A full outgoing buffer with policy 'drop-newest': the new one is a SaturatedError",
    area: 'publish',
    ref: 20,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 60_000,
    needs,
    async run(ctx) {
      const { bus, to, seen } = await stalled(ctx, 'drop-newest', 5)
      const promises = entries(12).map((entry) => bus.publish(to, entry))
      const states = watch(promises)
      await ctx.until(
        () => states.filter((state) => state === 'LONGSHORE_SATURATED').length >= 7,
        () => `7 saturation errors; states are ${states.join(', ')}`,
        3000,
      )
      withinBounds(bus, 5)
      await ctx.hooks.startBroker()
      await ctx.until(
        () => states.every((state) => state !== 'pending'),
        () => `all publishes to end; states are ${states.join(', ')}`,
        25_000,
      )
      same(
        states,
        entries(12).map(({ n }) => (n < 5 ? 'confirmed' : 'LONGSHORE_SATURATED')),
        'outcomes',
      )
      await ctx.until(
        () => delivered(seen()).length >= 5,
        () => `5 messages; saw ${delivered(seen())}`,
      )
      same(delivered(seen()), [0, 1, 2, 3, 4], 'delivered')
    },
  }),

  check({
    id: 'publish.buffer-drop-oldest',
    title:
      "A full outgoing buffer with policy 'drop-oldest': never blocks, and each drop is reported",
    area: 'publish',
    ref: 20,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 60_000,
    needs,
    async run(ctx) {
      const { bus, to, seen } = await stalled(ctx, 'drop-oldest', 5)
      let events = 0
      ctx.defer(bus.on('dropped', () => events++))
      const promises = entries(12).map((entry) => bus.publish(to, entry))
      const states = watch(promises)
      const dropped = () => states.filter((state) => state === 'LONGSHORE_DROPPED').length
      await ctx.until(
        () => dropped() >= 7,
        () => `7 drops; states are ${states.join(', ')}`,
        3000,
      )
      withinBounds(bus, 5)
      same(states[11], 'pending', 'the newest, which must have been taken')
      await ctx.hooks.startBroker()
      await ctx.until(
        () => states.every((state) => state !== 'pending'),
        () => `all publishes to end; states are ${states.join(', ')}`,
        25_000,
      )
      const confirmed = entries(12).flatMap(({ n }) => (states[n] === 'confirmed' ? [n] : []))
      same(confirmed.length + dropped(), 12, 'confirmed and dropped together')
      same(events, dropped(), "events 'dropped'")
      await ctx.until(
        () => delivered(seen()).length >= confirmed.length,
        () => `the messages ${confirmed}; saw ${delivered(seen())}`,
      )
      same(delivered(seen()), confirmed, 'delivered')
      ctx.count({ dropped: dropped() })
    },
  }),
]
