import { check } from '../check.js'
import type { CheckContext } from '../context.js'
import { ensure, rejects, same } from '../expect.js'
import { Ledger } from '../ledger.js'
import { createGroup, entries, numbered, numbersOf, publishAll } from './shared.js'

/** For drivers without groups: a second one must be refused, for it would take messages from the first. */
async function secondGroupRefused(ctx: CheckContext): Promise<void> {
  const bus = await ctx.connect()
  const to = numbered(ctx.topic())
  await ctx.collect(bus, to, { group: ctx.group() })
  await rejects(
    () => bus.subscribe(to, { group: ctx.group() }, () => {}),
    'LONGSHORE_UNSUPPORTED',
    'a second group',
  )
}

export const groups = [
  check({
    id: 'groups.each-gets-all',
    title: 'Two groups each get everything',
    area: 'groups',
    ref: 46,
    noLoss: true,
    needs: { capabilities: ['groups'] },
    otherwise: secondGroupRefused,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const ledger = new Ledger()
      for (const name of ['one', 'two']) {
        await ctx.collect(bus, to, { group: ctx.group(name), concurrency: 10 }, (entry) =>
          ledger.see(entry, name),
        )
      }
      same(await publishAll(bus, to, entries(200)), [], 'failed publishes')
      for (const entry of entries(200)) ledger.confirm(entry)
      await ctx.until(
        () => ledger.missing('one').length + ledger.missing('two').length === 0,
        () => `both groups; ${JSON.stringify([ledger.counts('one'), ledger.counts('two')])}`,
      )
      for (const name of ['one', 'two']) ledger.verify({ duplicates: 0 }, name, `group ${name}`)
      ctx.count(ledger.counts('one'))
    },
  }),

  check({
    id: 'groups.share',
    title: 'Members of one group share its messages without duplicates',
    area: 'groups',
    ref: 47,
    noLoss: true,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const shares = [0, 0, 0]
      for (let member = 0; member < 3; member++) {
        const bus = await ctx.connect()
        await ctx.collect(bus, to, { group, concurrency: 2, prefetch: 4 }, async (entry) => {
          ledger.see(entry)
          shares[member]!++
          await new Promise((resolve) => setTimeout(resolve, 2))
        })
      }
      const publisher = await ctx.connect()
      const all = Array.from({ length: 300 }, (_, n) => ({ producer: 'p', key: `k${n % 50}`, n }))
      same(await publishAll(publisher, to, all), [], 'failed publishes')
      for (const entry of all) ledger.confirm(entry)
      await ctx.until(
        () => ledger.missing().length === 0,
        () => `all messages; ${JSON.stringify(ledger.counts())}`,
      )
      ctx.count(ledger.verify({ duplicates: 0 }))
      ensure(
        shares.filter((share) => share > 0).length >= 2,
        `one member got everything: ${shares.join(', ')}`,
      )
    },
  }),

  check({
    id: 'groups.join-and-leave',
    title: 'Members that join and leave in mid-stream lose nothing',
    area: 'groups',
    ref: 48,
    noLoss: true,
    timeoutMs: 90_000,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const join = async () => {
        const bus = await ctx.connect()
        const options = { group, concurrency: 4 }
        const { subscription } = await ctx.collect(bus, to, options, async (entry) => {
          ledger.see(entry)
          await new Promise((resolve) => setTimeout(resolve, 1))
        })
        return subscription
      }
      const members = [await join(), await join()]
      const publisher = await ctx.connect()
      let stop = false
      let n = 0
      const publishing = (async () => {
        while (!stop) {
          const entry = { producer: 'p', key: `k${n % 16}`, n: n++ }
          ledger.publish(entry)
          await publisher.publish(to, entry)
          ledger.confirm(entry)
          if (n % 10 === 0) await new Promise((resolve) => setImmediate(resolve))
        }
      })()
      publishing.catch(() => {})
      for (let round = 0; round < 4; round++) {
        members.push(await join())
        const target = ledger.counts().seen + 100
        await ctx.until(
          () => ledger.counts().seen >= target,
          () => `100 more; ${JSON.stringify(ledger.counts())}`,
          20_000,
        )
        await members.shift()!.close()
      }
      stop = true
      await publishing
      await ctx.until(
        () => ledger.missing().length === 0,
        () => `all messages; ${JSON.stringify(ledger.counts())}`,
        30_000,
      )
      ctx.count(ledger.verify())
    },
  }),

  check({
    id: 'groups.isolation',
    title: '20 topics at once stay isolated',
    area: 'groups',
    ref: 50,
    noLoss: true,
    timeoutMs: 60_000,
    async run(ctx) {
      const bus = await ctx.connect()
      // One group name for all of them: names of groups belong to their topics.
      const group = ctx.group()
      const ledger = new Ledger()
      const topics = Array.from({ length: 20 }, () => numbered(ctx.topic()))
      const strays: string[] = []
      await Promise.all(
        topics.map((to) =>
          ctx.collect(bus, to, { group, concurrency: 4 }, (entry) => {
            ledger.see(entry, to.name)
            if (entry.producer !== to.name) strays.push(`${entry.n} of ${entry.producer}`)
          }),
        ),
      )
      await Promise.all(
        topics.map(async (to) => {
          same(await publishAll(bus, to, entries(25, 'k', to.name)), [], 'failed publishes')
        }),
      )
      const seen = () => topics.map((to) => ledger.counts(to.name).seen)
      for (const to of topics) for (const e of entries(25, 'k', to.name)) ledger.publish(e)
      await ctx.until(
        () => seen().every((count) => count >= 25),
        () => `25 messages in each topic; there are ${seen()}`,
        30_000,
      )
      same(strays, [], 'messages of other topics')
      for (const to of topics) {
        same(ledger.counts(to.name).seen, 25, `messages of ${to.name}`)
        same(ledger.counts(to.name).duplicates, 0, `duplicates of ${to.name}`)
      }
    },
  }),

  check({
    id: 'groups.late-latest',
    title: "A late group from 'latest' gets only what is published after it",
    area: 'groups',
    ref: 51,
    needs: { capabilities: ['groups'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const early = await ctx.collect(bus, to, { group: ctx.group('early') })
      same(await publishAll(bus, to, entries(10)), [], 'failed publishes')
      await early.has(10)
      const late = await ctx.collect(bus, to, { group: ctx.group('late'), from: 'latest' })
      await bus.publish(to, { producer: 'p', key: 'k', n: 10 })
      await late.has(1)
      same(numbersOf(late.seen), [10], 'seen by the late group')
    },
  }),

  check({
    id: 'groups.late-earliest',
    title: "A late group from 'earliest' gets the old messages too",
    area: 'groups',
    ref: 51,
    noLoss: true,
    needs: { capabilities: ['replay'] },
    async otherwise(ctx) {
      const bus = await ctx.connect()
      await rejects(
        () => bus.subscribe(ctx.topic(), { group: ctx.group(), from: 'earliest' }, () => {}),
        'LONGSHORE_UNSUPPORTED',
        "subscribing from 'earliest'",
      )
    },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const early = await ctx.collect(bus, to, { group: ctx.group('early') })
      same(await publishAll(bus, to, entries(50)), [], 'failed publishes')
      await early.has(50)
      const group = ctx.group('late')
      const late = await ctx.collect(bus, to, { group, from: 'earliest' })
      await late.has(50)
      await bus.publish(to, { producer: 'p', key: 'k', n: 50 })
      await late.has(51)
      same(
        numbersOf(late.seen).sort((a, b) => a - b),
        entries(51).map((e) => e.n),
        'seen by the late group',
      )
      // A group begins once: coming back it goes on where it was.
      await late.subscription.close()
      const back = await ctx.collect(bus, to, { group, from: 'earliest' })
      await bus.publish(to, { producer: 'p', key: 'k', n: 51 })
      await back.has(1)
      same(numbersOf(back.seen), [51], 'seen when it comes back')
    },
  }),

  check({
    id: 'groups.late-date',
    title: 'A late group from a date gets what was published since then',
    area: 'groups',
    ref: 51,
    needs: { capabilities: ['replay'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const early = await ctx.collect(bus, to, { group: ctx.group('early') })
      same(await publishAll(bus, to, entries(5)), [], 'failed publishes')
      await early.has(5)
      const clean = Date.now() + 50
      await ctx.until(() => Date.now() > clean, 'a moment between the two halves')
      const from = new Date()
      const rest = entries(10).slice(5)
      same(await publishAll(bus, to, rest), [], 'failed publishes')
      const late = await ctx.collect(bus, to, { group: ctx.group('late'), from })
      await late.has(5)
      await bus.publish(to, { producer: 'p', key: 'k', n: 10 })
      await late.has(6)
      same(
        numbersOf(late.seen).sort((a, b) => a - b),
        [5, 6, 7, 8, 9, 10],
        'seen by the late group',
      )
    },
  }),

  check({
    id: 'groups.durable-offline',
    title: 'A group gets what was published while it was offline',
    area: 'groups',
    ref: 52,
    noLoss: true,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      await createGroup(ctx, to, group)
      const publisher = await ctx.connect()
      const ledger = new Ledger()
      same(await publishAll(publisher, to, entries(100)), [], 'failed publishes')
      for (const entry of entries(100)) ledger.confirm(entry)
      await publisher.close()
      const bus = await ctx.connect()
      await ctx.collect(bus, to, { group, concurrency: 10 }, (entry) => ledger.see(entry))
      await ctx.until(
        () => ledger.missing().length === 0,
        () => `all messages; ${JSON.stringify(ledger.counts())}`,
      )
      ctx.count(ledger.verify({ duplicates: 0 }))
    },
  }),
]
