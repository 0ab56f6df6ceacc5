import { topic } from '@longshore/core'
import { check } from '../check.js'
import { ensure, rejects, same } from '../expect.js'
import { type Entry, Ledger } from '../ledger.js'
import { createGroup, entries, numbered, publishAll } from './shared.js'

export const publish = [
  check({
    id: 'publish.confirmed-is-stored',
    title: 'What was confirmed is delivered, though its publisher is gone',
    area: 'publish',
    ref: 13,
    noLoss: true,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      await createGroup(ctx, to, group)
      const ledger = new Ledger()
      const publisher = await ctx.connect()
      for (const entry of entries(50)) {
        await publisher.publish(to, entry)
        ledger.confirm(entry)
      }
      await publisher.close()
      const bus = await ctx.connect()
      await ctx.collect(bus, to, { group, concurrency: 10 }, (entry) => ledger.see(entry))
      await ctx.until(
        () => ledger.missing().length === 0,
        () => `all confirmed messages; ${JSON.stringify(ledger.counts())}`,
      )
      ctx.count(ledger.verify({ duplicates: 0 }))
    },
  }),

  check({
    id: 'publish.confirmed-survives-crash',
    title:
      'Publish resolves only after the broker has the message: a crash right after it loses none',
    area: 'publish',
    ref: 13,
    noLoss: true,
    needs: { anyHook: ['program', 'crash'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const bus = await ctx.connect()
      await ctx.collect(bus, to, { group, concurrency: 10 }, (entry) => ledger.see(entry))
      for (let round = 0; round < 3; round++) {
        const producer = `p${round}`
        const publish = { producer, key: 'k', count: 1000 }
        for (const entry of entries(1000, 'k', producer)) ledger.publish(entry)
        const member = await ctx.member({ topic: to.name, group, role: 'publish', publish })
        await ctx.until(
          () => member.confirmed.length >= 5 + round * 7,
          () => `confirmations; ${member.confirmed.length} came ${member.errors.join()}`,
        )
        await member.kill()
        for (const entry of member.confirmed) ledger.confirm(entry)
      }
      await ctx.until(
        () => ledger.missing().length === 0,
        () => `all confirmed messages; ${JSON.stringify(ledger.counts())}`,
      )
      ctx.count(ledger.verify())
    },
  }),

  check({
    id: 'publish.batch-outcomes',
    title: "A batch with failing members reports each message's own outcome",
    area: 'publish',
    ref: 15,
    noLoss: true,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const { seen } = await ctx.collect(bus, to, { group: ctx.group(), concurrency: 10 })
      const circular = { producer: 'p', key: 'k', n: 2 } as Entry & { self?: unknown }
      circular.self = circular
      const outcomes = await bus.publishBatch(to, [
        { payload: { producer: 'p', key: 'k', n: 0 } },
        { payload: { producer: 'p', key: 'k', n: 1 }, headers: { 'longshore-x': '1' } },
        { payload: circular },
        { payload: { producer: 'p', key: 'k', n: 3 }, id: `${ctx.runId}-three` },
      ])
      same(
        outcomes.map((o) => (o.status === 'confirmed' ? o.status : `${o.status} ${o.error.code}`)),
        ['confirmed', 'failed LONGSHORE_HEADER', 'failed LONGSHORE_ENCODE', 'confirmed'],
        'outcomes',
      )
      same(outcomes[3]?.id, `${ctx.runId}-three`, 'id of the last outcome')
      await bus.publish(to, { producer: 'p', key: 'k', n: 4 })
      await ctx.until(
        () => [0, 3, 4].every((n) => seen.some((one) => one.payload.n === n)),
        () => `messages 0, 3 and 4; saw ${seen.map((one) => one.payload.n)}`,
      )
      same(
        seen.map((one) => one.payload.n).sort(),
        [0, 3, 4],
        'delivered, for the confirmed members and one more',
      )
    },
  }),

  check({
    id: 'publish.concurrent',
    title: '50 publishers of 100 messages each: none missing',
    area: 'publish',
    ref: 16,
    noLoss: true,
    timeoutMs: 60_000,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const ledger = new Ledger()
      await ctx.collect(bus, to, { group: ctx.group(), concurrency: 50 }, (e) => ledger.see(e))
      const connections = await Promise.all(Array.from({ length: 5 }, () => ctx.connect()))
      await Promise.all(
        Array.from({ length: 50 }, async (_, p) => {
          for (const entry of entries(100, 'k', `p${p}`)) {
            ledger.publish(entry)
            await connections[p % 5]!.publish(to, entry)
            ledger.confirm(entry)
          }
        }),
      )
      await ctx.until(
        () => ledger.missing().length === 0,
        () => `all messages; ${JSON.stringify(ledger.counts())}`,
        30_000,
      )
      const counts = ledger.verify({ duplicates: 0 })
      same(counts.confirmed, 5000, 'confirmed')
      ctx.count(counts)
    },
  }),

  check({
    id: 'publish.copies',
    title: 'Changing the object after publish changes nothing delivered',
    area: 'publish',
    ref: 17,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = topic<{ items: string[] }>(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      const payload = { items: ['first'] }
      const headers: Record<string, string> = { tenant: 'before' }
      const published = bus.publish(to, payload, { headers })
      payload.items.push('second')
      headers.tenant = 'after'
      headers.extra = 'x'
      await published
      payload.items.push('third')
      await has(1)
      same(seen[0]!.payload, { items: ['first'] }, 'payload')
      same({ ...seen[0]!.message.headers }, { tenant: 'before' }, 'headers')
    },
  }),

  check({
    id: 'publish.copies-between-groups',
    title: 'What one handler does to its payload another does not see',
    area: 'publish',
    ref: 17,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = topic<{ items: string[] }>(ctx.topic())
      const spoil = (payload: { items: string[] }) => payload.items.splice(0)
      const seen: string[][] = []
      const note = (payload: { items: string[] }) => {
        seen.push([...payload.items])
        spoil(payload)
      }
      await ctx.collect(bus, to, { group: ctx.group() }, note)
      await ctx.collect(bus, to, { group: ctx.group() }, note)
      await bus.publish(to, { items: ['a'] })
      await ctx.until(
        () => seen.length >= 2,
        () => `both groups; ${seen.length} came`,
      )
      same(seen, [['a'], ['a']], 'payloads of both groups')
    },
  }),

  check({
    id: 'publish.not-found',
    title: 'With autoCreate: false a missing destination is a NotFoundError',
    area: 'publish',
    ref: 18,
    async run(ctx) {
      const bus = await ctx.connect({ autoCreate: false })
      const missing = ctx.topic('missing')
      const what = 'to a topic that does not exist'
      await rejects(() => bus.publish(missing, 'x'), 'LONGSHORE_NOT_FOUND', `publishing ${what}`)
      await rejects(
        () => bus.subscribe(missing, { group: ctx.group() }, () => {}),
        'LONGSHORE_NOT_FOUND',
        `subscribing ${what}`,
      )
    },
  }),

  check({
    id: 'publish.auto-create',
    title: 'A missing destination is created on first use',
    area: 'publish',
    ref: 18,
    needs: { capabilities: ['autoCreate'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = topic<string>(ctx.topic('fresh'))
      await bus.publish(to, 'to nobody')
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      await bus.publish(to, 'to the group')
      await has(1)
      same(seen.at(-1)!.payload, 'to the group', 'payload')
    },
  }),

  check({
    id: 'publish.aborted',
    title: 'An aborted signal before sending sends nothing',
    area: 'publish',
    ref: 19,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      const signal = AbortSignal.abort()
      const entry = { producer: 'p', key: 'k', n: 0 }
      const error = await rejects(
        () => bus.publish(to, entry, { signal, id: `${ctx.runId}-aborted` }),
        'LONGSHORE_ABORTED',
        'publishing with an aborted signal',
      )
      same(error.id, `${ctx.runId}-aborted`, 'the id that the error tells')
      await bus.publish(to, { ...entry, n: 1 })
      await has(1)
      same(
        seen.map((one) => one.payload.n),
        [1],
        'messages',
      )
    },
  }),

  check({
    id: 'publish.dedupe',
    title: 'A repeated id is confirmed but delivered once',
    area: 'publish',
    ref: 0,
    needs: { capabilities: ['dedupe'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const { seen } = await ctx.collect(bus, to, { group: ctx.group() })
      const entry = { producer: 'p', key: 'k', n: 0 }
      const id = `${ctx.runId}-same`
      for (let i = 0; i < 3; i++) same((await bus.publish(to, entry, { id })).id, id, 'id')
      same(await publishAll(bus, to, [{ ...entry, n: 1 }]), [], 'failures')
      await ctx.until(() => seen.some((one) => one.payload.n === 1), 'the message after them')
      ensure(
        seen.length === 2,
        () => `expected each message once, saw ${seen.map((one) => one.payload.n)}`,
      )
    },
  }),
]
