import { check } from '../check.js'
import { ensure, rejects, same } from '../expect.js'
import { gate } from '../until.js'
import { entries, numbered, numbersOf, publishAll } from './shared.js'

export const lifecycle = [
  check({
    id: 'lifecycle.close-lets-finish',
    title: 'Closing lets running handlers publish and ack',
    area: 'lifecycle',
    ref: 53,
    noLoss: true,
    async run(ctx) {
      const from = numbered(ctx.topic('from'))
      const to = numbered(ctx.topic('to'))
      const group = ctx.group()
      const watcher = await ctx.connect()
      const outcome = await ctx.collect(watcher, to, { group: ctx.group('outcome') })
      const bus = await ctx.connect()
      const release = gate()
      ctx.defer(release.open)
      const aborted: boolean[] = []
      const inbox = await ctx.collect(bus, from, { group, concurrency: 3 }, async (e, context) => {
        await release.opened
        aborted.push(context.signal.aborted)
        await context.publish(to, { ...e, producer: 'handler' })
      })
      same(await publishAll(watcher, from, entries(3)), [], 'failed publishes')
      await inbox.has(3)
      const closing = bus.close({ timeout: '20s' })
      await ctx.until(
        () => inbox.subscription.state === 'closing' || inbox.subscription.state === 'closed',
        () => `the subscription to begin closing; it is ${inbox.subscription.state}`,
      )
      same(inbox.subscription.running, 3, 'handlers that still run')
      release.open()
      same(await closing, { drained: true, abandoned: 0 }, 'report of the close')
      same(aborted, [false, false, false], 'signals aborted before the deadline')
      await outcome.has(3)
      // Acked: the next consumer gets only what comes after.
      const heir = await ctx.collect(watcher, from, { group })
      await watcher.publish(from, { producer: 'p', key: 'k', n: 3 })
      await heir.has(1)
      same(numbersOf(heir.seen), [3], 'seen by the next consumer')
      same(outcome.seen.length, 3, 'published by the handlers')
    },
  }),

  check({
    id: 'settle.stop-half-batch',
    title:
      'Stopping half-way through a batch neither acks nor loses the unstarted ones, nor counts an attempt',
    area: 'settle',
    ref: 29,
    noLoss: true,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const first = await ctx.connect()
      const release = gate()
      ctx.defer(release.open)
      const options = { group, concurrency: 2, prefetch: 20 }
      const before = await ctx.collect(first, to, options, ({ n }) => {
        if (n >= 3) return release.opened
      })
      const publisher = await ctx.connect()
      same(await publishAll(publisher, to, entries(30)), [], 'failed publishes')
      await before.has(4)
      const closing = first.close({ timeout: '20s' })
      await ctx.until(() => before.subscription.state !== 'running', 'the subscription to close')
      release.open()
      same((await closing).drained, true, 'drained')
      const handled = numbersOf(before.seen)
      ensure(handled.length < 30, 'it went on handling until nothing was left')
      const second = await ctx.connect()
      const after = await ctx.collect(second, to, { group, concurrency: 5 })
      await after.has(30 - handled.length)
      await publisher.publish(to, { producer: 'p', key: 'k', n: 30 })
      await ctx.until(() => numbersOf(after.seen).includes(30), 'the message after them')
      same(
        [...handled, ...numbersOf(after.seen)].sort((a, b) => a - b),
        entries(31).map((e) => e.n),
        'handled by both together',
      )
      const attempts = [...new Set(after.seen.map((one) => one.attempt))]
      same(attempts, [1], 'attempts of what was handed back')
      ctx.count({ first: handled.length, second: after.seen.length })
    },
  }),

  check({
    id: 'lifecycle.close-dead-letters-nothing',
    title: 'Closing dead-letters nothing: what was cut off and what was unstarted returns',
    area: 'lifecycle',
    ref: 54,
    noLoss: true,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const bus = await ctx.connect()
      let dead = 0
      bus.on('dead-lettered', () => dead++)
      // One attempt only, so that whatever counted as a failure would be dead-lettered at once.
      const options = { group, concurrency: 2, prefetch: 10, retry: { attempts: 1 } }
      const before = await ctx.collect(bus, to, options, (_, { signal }) => {
        return new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason), { once: true })
        })
      })
      const other = await ctx.connect()
      same(await publishAll(other, to, entries(20)), [], 'failed publishes')
      await before.has(2)
      const report = await ctx.within(bus.close({ timeout: 300 }), 'the bus to close', 5000)
      same(report, { drained: false, abandoned: 2 }, 'report of the close')
      const after = await ctx.collect(other, to, { group, concurrency: 5 })
      await ctx.until(
        () => after.seen.length >= 20,
        () => `all 20 messages; ${after.seen.length} came`,
        40_000 / 2,
      )
      same(
        numbersOf(after.seen).sort((a, b) => a - b),
        entries(20).map((e) => e.n),
        'seen by the next consumer',
      )
      same(dead, 0, 'dead letters')
      if (ctx.capabilities.deadLetters) {
        same(await other.deadLetters(to.name, group).count(), 0, 'dead letters stored')
      }
      same(
        after.seen.filter((one) => one.attempt !== 1).map((one) => one.payload.n),
        [],
        'messages for which closing counted as an attempt',
      )
    },
  }),

  check({
    id: 'lifecycle.close-idempotent',
    title: 'Close is idempotent, also when called twice at once',
    area: 'lifecycle',
    ref: 55,
    async run(ctx) {
      const bus = await ctx.connect()
      const { subscription } = await ctx.collect(bus, ctx.topic(), { group: ctx.group() })
      const [one, two] = await ctx.within(
        Promise.all([bus.close(), bus.close()]),
        'both closes',
        5000,
      )
      same(one, { drained: true, abandoned: 0 }, 'report')
      same(two, one, 'report of the second close')
      same(await bus.close(), one, 'report of the third close')
      await ctx.within(subscription.done, "the subscription's end", 1000)
      same(subscription.state, 'closed', 'state of the subscription')
      await subscription.close()
    },
  }),

  check({
    id: 'lifecycle.close-timeout',
    title: 'Close meets its timeout with a stuck handler',
    area: 'lifecycle',
    ref: 55,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const release = gate()
      ctx.defer(release.open)
      const { has } = await ctx.collect(bus, to, { group: ctx.group() }, () => release.opened)
      await bus.publish(to, { producer: 'p', key: 'k', n: 0 })
      await has(1)
      const begun = Date.now()
      const report = await ctx.within(bus.close({ timeout: 500 }), 'the bus to close', 5000)
      const took = Date.now() - begun
      same(report, { drained: false, abandoned: 1 }, 'report of the close')
      ensure(took >= 490 && took <= 2500, `closing took ${took} ms, with a timeout of 500 ms`)
    },
  }),

  check({
    id: 'lifecycle.close-unused',
    title: 'A bus that was never used closes at once',
    area: 'lifecycle',
    ref: 55,
    async run(ctx) {
      const bus = await ctx.connect()
      const begun = Date.now()
      same(await bus.close(), { drained: true, abandoned: 0 }, 'report of the close')
      ensure(Date.now() - begun < 2000, `closing took ${Date.now() - begun} ms`)
    },
  }),

  check({
    id: 'lifecycle.use-after-close',
    title: 'Use after close is a ClosedError',
    area: 'lifecycle',
    ref: 56,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = ctx.topic()
      const group = ctx.group()
      await bus.close()
      const uses: Record<string, () => unknown> = {
        publish: () => bus.publish(to, 'x'),
        publishBatch: () => bus.publishBatch(to, [{ payload: 'x' }]),
        subscribe: () => bus.subscribe(to, { group }, () => {}),
        subscribeBatch: () => bus.subscribeBatch(to, { group }, () => {}),
        consume: () => bus.consume(to, { group })[Symbol.asyncIterator]().next(),
      }
      if (ctx.capabilities.deadLetters) {
        uses['deadLetters().count'] = () => bus.deadLetters(to, group).count()
      }
      for (const [name, use] of Object.entries(uses)) {
        const used = Promise.resolve().then(use)
        await ctx.within(
          rejects(used, 'LONGSHORE_CLOSED', `${name} after close`),
          `${name} after close to end`,
          3000,
        )
      }
    },
  }),

  check({
    id: 'lifecycle.abort-subscription',
    title: 'Aborting a subscription ends it; a successor gets the rest',
    area: 'lifecycle',
    ref: 57,
    noLoss: true,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const bus = await ctx.connect()
      const abort = new AbortController()
      const options = { group, concurrency: 2, signal: abort.signal }
      const before = await ctx.collect(bus, to, options, async ({ n }) => {
        await new Promise((resolve) => setTimeout(resolve, 5))
        if (n === 10) abort.abort()
      })
      same(await publishAll(bus, to, entries(60)), [], 'failed publishes')
      await ctx.within(before.subscription.done, 'the subscription to end')
      same(before.subscription.state, 'closed', 'state')
      const handled = before.seen.length
      ensure(handled < 60, 'it went on until nothing was left')
      const after = await ctx.collect(bus, to, { group, concurrency: 5 })
      await after.has(60 - handled)
      await bus.publish(to, { producer: 'p', key: 'k', n: 60 })
      await ctx.until(() => numbersOf(after.seen).includes(60), 'the message after them')
      same(
        [...numbersOf(before.seen), ...numbersOf(after.seen)].sort((a, b) => a - b),
        entries(61).map((e) => e.n),
        'handled by both together',
      )
      same(before.seen.length, handled, 'deliveries to the one that was aborted')
    },
  }),

  check({
    id: 'lifecycle.pause-and-resume',
    title: 'A paused subscription starts nothing; what waits in the broker flows when it resumes',
    area: 'lifecycle',
    ref: 57,
    noLoss: true,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const bus = await ctx.connect()
      const paused = await ctx.collect(bus, to, { group: ctx.group('paused') })
      const other = await ctx.collect(bus, to, { group: ctx.group('other') })
      await bus.publish(to, { producer: 'p', key: 'k', n: 0 })
      await paused.has(1)
      paused.subscription.pause()
      same(paused.subscription.state, 'paused', 'state')
      for (let n = 1; n < 11; n++) await bus.publish(to, { producer: 'p', key: 'k', n })
      await other.has(11)
      same(numbersOf(paused.seen), [0], 'seen while paused')
      paused.subscription.resume()
      await paused.has(11)
      await bus.publish(to, { producer: 'p', key: 'k', n: 11 })
      await paused.has(12)
      same(
        numbersOf(paused.seen).sort((a, b) => a - b),
        entries(12).map((e) => e.n),
        'seen',
      )
    },
  }),

  check({
    id: 'lifecycle.no-leaks',
    title: 'Ten opens and closes at once leak no handles, no sockets, no timers',
    area: 'lifecycle',
    ref: 58,
    schedule: 'alone',
    timeoutMs: 60_000,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const use = async () => {
        const bus = await ctx.target.connect()
        const subscription = await bus.subscribe(to, { group }, () => {})
        await bus.publish(to, { producer: 'p', key: 'k', n: 0 })
        await subscription.close()
        await bus.close()
      }
      // What is opened once per process is no leak.
      await use()
      const count = () => {
        const kinds: Record<string, number> = {}
        for (const kind of process.getActiveResourcesInfo()) kinds[kind] = (kinds[kind] ?? 0) + 1
        return kinds
      }
      await new Promise((resolve) => setTimeout(resolve, 100))
      const before = count()
      await Promise.all(Array.from({ length: 10 }, use))
      const left = () =>
        Object.entries(count()).flatMap(([kind, n]) => {
          const more = n - (before[kind] ?? 0)
          return more > 0 && kind !== 'Immediate' ? [`${more} × ${kind}`] : []
        })
      await ctx.until(
        // Its own timer is there only while it waits, as it was not in the count before.
        () => left().length === 0,
        () => `all handles to go; left are ${left().join(', ')}`,
        15_000,
      )
    },
  }),
]
