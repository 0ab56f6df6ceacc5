import type { Bus, Topic } from '@longshore/core'
import { check } from '../check.js'
import { codeOf, ensure, rejects, same } from '../expect.js'
import { type Entry, Ledger } from '../ledger.js'
import { entries, numbered } from './shared.js'

/** The first message to a topic may make the driver ask the broker for things, and wait for answers. */
async function warmUp(bus: Bus, to: Topic<Entry>): Promise<void> {
  await bus.publish(to, { producer: 'warm-up', key: 'k', n: -1 })
}

export const outcomes = [
  check({
    id: 'publish.cut-before-confirm',
    title: 'Connections cut in mid-publish: what is reported done is there, under its id',
    area: 'publish',
    ref: 14,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 60_000,
    needs: { anyHook: ['severConnections', 'proxy'] },
    async run(ctx) {
      const network = await ctx.network()
      const to = numbered(ctx.topic())
      const ledger = new Ledger()
      const ids = new Map<number, Set<string>>()
      const consumer = await ctx.connect()
      await ctx.collect(consumer, to, { group: ctx.group(), concurrency: 20 }, (entry, context) => {
        ledger.see(entry)
        const known = ids.get(entry.n) ?? new Set()
        ids.set(entry.n, known.add(context.message.id))
      })
      const bus = await network.connect({ publish: { deadline: '20s' } })
      const all = entries(1000)
      const undone: string[] = []
      const cuts: Promise<void>[] = []
      let started = 0
      const publishOne = async (entry: (typeof all)[number]) => {
        ledger.publish(entry)
        started++
        if (started === 200 || started === 500 || started === 800) {
          const cut = network.sever()
          cut.catch(() => {})
          cuts.push(cut)
        }
        try {
          const { id } = await bus.publish(to, entry, { id: `${ctx.runId}-${entry.n}` })
          same(id, `${ctx.runId}-${entry.n}`, 'id of the publish')
          ledger.confirm(entry)
        } catch (error) {
          undone.push(codeOf(error))
        }
      }
      const lanes = Array.from({ length: 20 }, async (_, lane) => {
        for (let n = lane; n < all.length; n += 20) await publishOne(all[n]!)
      })
      await ctx.within(Promise.all(lanes), 'all publishes to end', 40_000)
      await Promise.all(cuts)
      const wrong = undone.filter((code) => code !== 'LONGSHORE_OUTCOME_UNKNOWN')
      same(wrong, [], 'publishes that ended neither confirmed nor unknown')
      await ctx.until(
        () => ledger.missing().length === 0,
        () => `all confirmed messages; ${JSON.stringify(ledger.counts())}`,
        20_000,
      )
      const foreign = [...ids].filter(([n, set]) => set.size > 1 || !set.has(`${ctx.runId}-${n}`))
      same(foreign, [], 'messages delivered under another id')
      ctx.count({ ...ledger.verify(), unknown: undone.length })
    },
  }),

  check({
    id: 'publish.confirm-lost',
    title: 'A lost confirmation is repeated under the same id',
    area: 'publish',
    ref: 14,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 90_000,
    needs: { anyHook: ['loseConfirms', 'proxy'] },
    async run(ctx) {
      const network = await ctx.network()
      const to = numbered(ctx.topic())
      const consumer = await ctx.connect()
      const { seen, has } = await ctx.collect(consumer, to, { group: ctx.group() })
      const bus = await network.connect({ publish: { deadline: '60s' } })
      await warmUp(bus, to)
      await network.loseConfirms(to.name)
      let done = false
      const id = `${ctx.runId}-once`
      const publishing = bus.publish(to, { producer: 'p', key: 'k', n: 0 }, { id })
      publishing.then(
        () => {
          done = true
        },
        () => {},
      )
      // The broker has it, and the publisher can't know.
      await has(2)
      ensure(!done, 'publish resolved though its confirmation was lost')
      await network.heal()
      await ctx.within(publishing, 'the publish to be repeated and confirmed', 60_000)
      await bus.publish(to, { producer: 'p', key: 'k', n: 1 })
      await ctx.until(() => seen.some((one) => one.payload.n === 1), 'the message after it')
      const copies = seen.filter((one) => one.payload.n === 0)
      same([...new Set(copies.map((one) => one.message.id))], [id], 'ids of all copies')
      ctx.count({ copies: copies.length })
    },
  }),

  check({
    id: 'publish.unknown-at-deadline',
    title: "Without a confirmation until the deadline it is 'unknown', not 'failed' and not done",
    area: 'publish',
    ref: 14,
    noLoss: true,
    schedule: 'alone',
    needs: { anyHook: ['loseConfirms', 'proxy'] },
    async run(ctx) {
      const network = await ctx.network()
      const to = numbered(ctx.topic())
      const consumer = await ctx.connect()
      const { has } = await ctx.collect(consumer, to, { group: ctx.group() })
      const bus = await network.connect()
      await warmUp(bus, to)
      await network.loseConfirms(to.name)
      const id = `${ctx.runId}-unknown`
      const begun = Date.now()
      const error = await ctx.within(
        rejects(
          bus.publish(to, { producer: 'p', key: 'k', n: 0 }, { id, deadline: 1000 }),
          'LONGSHORE_OUTCOME_UNKNOWN',
          'publishing without confirmations',
        ),
        'the publish to end at its deadline of 1000 ms',
        5000,
      )
      const took = Date.now() - begun
      same(error.id, id, 'the id that the error tells')
      ensure(took >= 990, `it gave up after ${took} ms, before its deadline of 1000 ms`)
      await has(2)
      await network.heal()
    },
  }),

  check({
    id: 'publish.lost-is-not-done',
    title: 'A message that was lost on its way is never reported as done',
    area: 'publish',
    ref: 14,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 90_000,
    needs: { anyHook: ['losePublishes', 'proxy'] },
    async run(ctx) {
      const network = await ctx.network()
      const to = numbered(ctx.topic())
      const consumer = await ctx.connect()
      const { seen, has } = await ctx.collect(consumer, to, { group: ctx.group() })
      const bus = await network.connect({ publish: { deadline: '60s' } })
      await network.losePublishes(to.name)
      const entry = { producer: 'p', key: 'k', n: 0 }
      await ctx.within(
        rejects(
          bus.publish(to, entry, { deadline: 700 }),
          ['LONGSHORE_OUTCOME_UNKNOWN', 'LONGSHORE_NOT_SENT'],
          'publishing into the void',
        ),
        'the publish to end at its deadline of 700 ms',
        5000,
      )
      const id = `${ctx.runId}-later`
      const publishing = bus.publish(to, { ...entry, n: 1 }, { id })
      publishing.catch(() => {})
      await network.heal()
      await ctx.within(publishing, 'the publish to be repeated and confirmed', 60_000)
      await ctx.until(() => seen.some((one) => one.message.id === id), 'the message delivered')
      await has(1)
    },
  }),

  check({
    id: 'publish.rejected',
    title: 'What the broker refuses is a RejectedError at once, and nothing is delivered',
    area: 'publish',
    ref: 15,
    schedule: 'alone',
    needs: { hooks: ['rejectPublishes'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const bus = await ctx.connect()
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      const repair = await ctx.hooks.rejectPublishes(to.name)
      ctx.defer(repair)
      const id = `${ctx.runId}-rejected`
      const error = await ctx.within(
        rejects(
          bus.publish(to, { producer: 'p', key: 'k', n: 0 }, { id }),
          'LONGSHORE_REJECTED',
          'publishing what the broker refuses',
        ),
        'the refusal to arrive',
        5000,
      )
      same(error.id, id, 'the id that the error tells')
      await repair()
      await bus.publish(to, { producer: 'p', key: 'k', n: 1 })
      await has(1)
      same(
        seen.map((one) => one.payload.n),
        [1],
        'messages',
      )
    },
  }),
]
