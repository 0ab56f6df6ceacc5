import { type Check, check, type Entry, Ledger, same } from '@longshore/conformance'
import {
  type ConsumeMiddleware,
  deduplicate,
  MemoryDedupeStore,
  PermanentError,
} from '@longshore/core'
import { numbered } from '../shared.js'

const count = 400

export const redrive: readonly Check[] = [
  check({
    id: 'redrive-killed',
    title: 'A redrive killed half-way, twice, and then run by two at once: each has one effect',
    area: 'redrive',
    ref: 0,
    timeoutMs: 90_000,
    needs: { capabilities: ['deadLetters'], anyHook: ['program', 'crash'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const effects = new Ledger()
      const bus = await ctx.connect()
      let broken = true
      const note: ConsumeMiddleware = async (context, next) => {
        if (!broken) ledger.see(context.payload as Entry)
        await next(context)
      }
      const inbox = deduplicate({ store: new MemoryDedupeStore() })
      const options = { group, concurrency: 10, middleware: [note, inbox] }
      await ctx.collect(bus, to, options, (entry) => {
        if (broken) throw new PermanentError('not now')
        effects.see(entry)
      })
      const entries = Array.from({ length: count }, (_, n) => ({ producer: 'p', key: 'k', n }))
      const outcomes = await bus.publishBatch(
        to,
        entries.map((payload) => ({ payload })),
      )
      same(
        outcomes.filter(({ status }) => status !== 'confirmed'),
        [],
        'failed publishes',
      )
      for (const entry of entries) {
        ledger.confirm(entry)
        effects.confirm(entry)
      }
      const letters = bus.deadLetters(to.name, group)
      await ctx.until(
        async () => (await letters.count()) === count,
        `${count} dead letters`,
        30_000,
      )
      broken = false
      const spec = { topic: to.name, group, role: 'redrive' } as const
      const begun = performance.now()
      for (const share of [1, count / 2]) {
        const member = await ctx.member(spec)
        await ctx.until(
          () => ledger.counts().seen >= share,
          () => `${share} redriven messages; ${JSON.stringify(ledger.counts())}`,
          20_000,
        )
        await member.kill()
      }
      const other = await ctx.connect()
      const both = [letters, other.deadLetters(to.name, group)]
      await ctx.until(
        async () => {
          // What was held when its holder was killed may come back only now.
          await Promise.all(both.map((one) => one.redrive()))
          return ledger.missing().length === 0 && (await letters.count()) === 0
        },
        () => `all to be redriven; ${JSON.stringify(ledger.counts())}`,
        30_000,
      )
      const noticedMs = Math.round(performance.now() - begun)
      await ctx.until(() => effects.missing().length === 0, 'all effects')
      effects.verify({ duplicates: 0 }, '', 'effects')
      // Copies whose letters were not removed yet when the redrive was killed.
      const allowed = count
      ctx.count({ ...ledger.verify({ duplicates: allowed }), allowed, noticedMs })
    },
  }),
]
