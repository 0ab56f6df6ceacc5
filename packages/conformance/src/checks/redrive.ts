import type { Bus, Topic } from '@longshore/core'
import { PermanentError } from '@longshore/core'
import { check, features } from '../check.js'
import type { CheckContext, Collected } from '../context.js'
import { rejects, same } from '../expect.js'
import { type Entry, Ledger } from '../ledger.js'
import { all, entries, numbered, numbersOf, publishAll } from './shared.js'

interface Graveyard {
  readonly bus: Bus
  readonly to: Topic<Entry>
  readonly group: string
  /** What the group got since it works again, after `recover`. */
  readonly redriven: () => number[]
  readonly collected: Collected<Entry>
  recover(): void
}

/** A group that dead-lettered so many messages and, when it recovers, would handle them. */
async function bury(
  ctx: Pick<CheckContext, 'connect' | 'collect' | 'topic' | 'group' | 'until' | 'capabilities'>,
  count: number,
  to: Topic<Entry> = numbered(ctx.topic()),
): Promise<Graveyard> {
  const bus = await ctx.connect()
  const group = ctx.group('failing')
  let failing = true
  const order = features.order(ctx.capabilities) ? 'key' : 'none'
  const collected = await ctx.collect(bus, to, { group, order }, () => {
    if (failing) throw new PermanentError('not now')
  })
  same(await publishAll(bus, to, entries(count)), [], 'failed publishes')
  const letters = bus.deadLetters(to.name, group)
  let dead = 0
  await ctx.until(
    async () => {
      dead = await letters.count()
      return dead >= count
    },
    () => `${count} dead letters; there are ${dead}`,
    20_000,
  )
  const recover = () => {
    failing = false
  }
  const redriven = () => numbersOf(collected.seen.slice(count))
  return { bus, to, group, collected, recover, redriven }
}

const needs = { capabilities: ['deadLetters'] } as const

/** For drivers without dead-letter access: it must say so, and so move nothing. */
async function unsupported(ctx: CheckContext): Promise<void> {
  const bus = await ctx.connect()
  await rejects(
    () => bus.deadLetters(ctx.topic(), ctx.group()).redrive(),
    'LONGSHORE_UNSUPPORTED',
    'redriving',
  )
}

export const redrive = [
  check({
    id: 'redrive.group-only',
    title: 'Only the group that failed receives what is redriven, with its id, as attempt 1',
    area: 'redrive',
    ref: 35,
    needs,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const other = await ctx.connect()
      const bystander = await ctx.collect(other, to, { group: ctx.group('bystander') })
      const grave = await bury(ctx, 10, to)
      await bystander.has(10)
      const ids = grave.collected.seen.map((one) => one.message.id)
      grave.recover()
      same(await grave.bus.deadLetters(to.name, grave.group).redrive(), 10, 'redriven')
      await grave.collected.has(20)
      const again = grave.collected.seen.slice(10)
      same(
        again.map((one) => one.message.id),
        ids,
        'ids',
      )
      same(
        again.map((one) => one.attempt),
        ids.map(() => 1),
        'attempts',
      )
      await other.publish(to, { producer: 'p', key: 'k', n: 10 })
      await ctx.until(
        () => numbersOf(bystander.seen).includes(10) && grave.redriven().includes(10),
        'the message after them',
      )
      same(
        numbersOf(bystander.seen),
        entries(11).map((e) => e.n),
        'seen by the other group',
      )
    },
  }),

  check({
    id: 'redrive.selection',
    title: 'One, by filter, a batch, all: the chosen ones and no others, each once',
    area: 'redrive',
    ref: 35,
    needs,
    async run(ctx) {
      const grave = await bury(ctx, 12)
      grave.recover()
      const letters = grave.bus.deadLetters(grave.to.name, grave.group)
      const ids = grave.collected.seen.map((one) => one.message.id)
      const expected: number[] = []
      const step = async (what: string, numbers: number[], work: () => Promise<number>) => {
        same(await work(), numbers.length, `redriven by ${what}`)
        expected.push(...numbers)
        await ctx.until(
          () => grave.redriven().length >= expected.length,
          () => `what was redriven by ${what}; saw ${grave.redriven()}`,
        )
        same(grave.redriven(), expected, `seen after ${what}`)
        same(await letters.count(), 12 - expected.length, `dead letters left after ${what}`)
      }
      await step('id', [5], () => letters.redrive({ id: ids[5]! }))
      await step('an id that is gone', [], () => letters.redrive({ id: ids[5]! }))
      await step('limit', [0, 1, 2], () => letters.redrive({ limit: 3 }))
      await step('ids', [7, 9], () => letters.redrive({ ids: [ids[7]!, ids[9]!] }))
      await step('a key that no letter has', [], () => letters.redrive({ key: 'other' }))
      const where = (letter: { body: Uint8Array }) => Buffer.from(letter.body).includes('"n":11')
      await step('where', [11], () => letters.redrive({ where }))
      await step('nothing (all)', [3, 4, 6, 8, 10], () => letters.redrive())
    },
  }),

  check({
    id: 'redrive.twice',
    title: 'Redriving twice, also at the same time, repeats nothing',
    area: 'redrive',
    ref: 35,
    needs,
    async run(ctx) {
      const grave = await bury(ctx, 20)
      grave.recover()
      const other = await ctx.connect()
      const counts = await Promise.all([
        grave.bus.deadLetters(grave.to.name, grave.group).redrive(),
        other.deadLetters(grave.to.name, grave.group).redrive(),
      ])
      same(counts[0]! + counts[1]!, 20, 'redriven by both together')
      same(await other.deadLetters(grave.to.name, grave.group).redrive(), 0, 'redriven by a third')
      await grave.bus.publish(grave.to, { producer: 'p', key: 'k', n: 20 })
      await ctx.until(
        () => grave.redriven().includes(20) && grave.redriven().length >= 21,
        () => `21 messages; saw ${grave.redriven()}`,
      )
      same(
        [...grave.redriven()].sort((a, b) => a - b),
        entries(21).map((e) => e.n),
        'seen',
      )
    },
  }),

  check({
    id: 'redrive.order',
    title: 'Redriving keeps the original order',
    area: 'redrive',
    ref: 35,
    needs,
    async run(ctx) {
      const grave = await bury(ctx, 100)
      const listed = await all(grave.bus.deadLetters(grave.to.name, grave.group).list())
      const numbers = listed.map((letter) => JSON.parse(Buffer.from(letter.body).toString()).n)
      same(
        numbers,
        entries(100).map((e) => e.n),
        'listed, oldest first',
      )
      grave.recover()
      await grave.bus.deadLetters(grave.to.name, grave.group).redrive()
      await grave.collected.has(200)
      same(
        grave.redriven(),
        entries(100).map((e) => e.n),
        'seen',
      )
    },
  }),

  check({
    id: 'redrive.again',
    title: 'What fails again after a redrive is dead-lettered again, whole',
    area: 'redrive',
    ref: 35,
    noLoss: true,
    needs,
    otherwise: unsupported,
    async run(ctx) {
      const grave = await bury(ctx, 5)
      const letters = grave.bus.deadLetters(grave.to.name, grave.group)
      const before = await all(letters.list())
      same(await letters.redrive(), 5, 'redriven')
      await grave.collected.has(10)
      await ctx.until(async () => (await letters.count()) >= 5, 'all to be dead-lettered again')
      const after = await all(letters.list())
      const essence = (list: typeof before) =>
        list.map(({ id, body }) => `${id} ${Buffer.from(body).toString()}`).sort()
      same(essence(after), essence(before), 'dead letters')
    },
  }),

  check({
    id: 'redrive.killed-half-way',
    title: 'A redrive that is killed half-way loses nothing and repeats little',
    area: 'redrive',
    ref: 35,
    noLoss: true,
    timeoutMs: 60_000,
    needs: { capabilities: ['deadLetters'], anyHook: ['program', 'crash'] },
    otherwise: unsupported,
    async run(ctx) {
      const count = 500
      const grave = await bury(ctx, count)
      grave.recover()
      const ledger = new Ledger()
      for (const entry of entries(count)) ledger.confirm(entry)
      const spec = { topic: grave.to.name, group: grave.group, role: 'redrive' } as const
      for (let round = 0; round < 3; round++) {
        const member = await ctx.member(spec)
        // Later each time: at once, after a turn of the event loop, and when the first one arrived.
        if (round === 1) await new Promise((resolve) => setImmediate(resolve))
        if (round === 2) await ctx.until(() => grave.redriven().length > 0, 'a redriven message')
        await member.kill()
      }
      const letters = grave.bus.deadLetters(grave.to.name, grave.group)
      await ctx.until(
        async () => {
          // What the last one held when it was killed may come back only now.
          await letters.redrive()
          return new Set(grave.redriven()).size >= count && (await letters.count()) === 0
        },
        () => `${count} different messages; saw ${new Set(grave.redriven()).size}`,
        30_000,
      )
      for (const n of grave.redriven()) ledger.see({ producer: 'p', key: 'k', n })
      ctx.count(ledger.verify({ duplicates: 300 }))
      same(await letters.count(), 0, 'dead letters left')
    },
  }),

  check({
    id: 'redrive.discard',
    title: 'Discarding deletes the chosen ones for good',
    area: 'redrive',
    ref: 35,
    needs,
    async run(ctx) {
      const grave = await bury(ctx, 6)
      grave.recover()
      const letters = grave.bus.deadLetters(grave.to.name, grave.group)
      await rejects(
        () => letters.discard({}),
        'LONGSHORE_OPTION',
        'discarding with an empty filter',
      )
      const id = grave.collected.seen[2]!.message.id
      same(await letters.discard({ id }), 1, 'discarded')
      same(await letters.get(id), undefined, 'the discarded one')
      same(await letters.redrive(), 5, 'redriven')
      await grave.collected.has(11)
      same([...grave.redriven()].sort(), [0, 1, 3, 4, 5], 'seen')
    },
  }),
]
