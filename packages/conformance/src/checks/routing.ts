import { type ContextWith, check } from '../check.js'
import type { Collected } from '../context.js'
import { same } from '../expect.js'
import type { Entry } from '../ledger.js'
import { routedFlows } from './routed-flows.js'
import { createGroup, numbered, numbersOf, publishRouted, settleDown } from './shared.js'

/** Groups that choose by these routes (undefined: none given), each with what it must get of the messages below. */
type Expected = readonly (readonly [
  routes: readonly string[] | undefined,
  gets: readonly number[],
])[]

/** Publishes to all these groups and compares what each gets, no message twice. */
async function eachGetsItsOwn(
  ctx: ContextWith<never>,
  messages: readonly (string | undefined)[],
  expected: Expected,
): Promise<void> {
  const bus = await ctx.connect()
  const to = numbered(ctx.topic())
  const groups: Collected<Entry>[] = []
  for (const [routes] of expected) {
    const options = { group: ctx.group(), ...(routes && { routes }) }
    groups.push(await ctx.collect(bus, to, options))
  }
  await publishRouted(bus, to, messages)
  const sorted = (group: Collected<Entry>) => numbersOf(group.seen).sort((a, b) => a - b)
  await ctx.until(
    () => groups.every(({ seen }, i) => seen.length >= expected[i]![1].length),
    () => `each group to get its messages; they have ${groups.map((g) => `[${sorted(g)}]`)}`,
  )
  await settleDown(ctx)
  for (const [i, [routes, gets]] of expected.entries()) {
    same(sorted(groups[i]!), gets, `messages of the group with routes ${routes ?? 'left out'}`)
  }
}

export const routing = [
  check({
    id: 'routing.exact',
    title: 'A group with routes gets the messages of these routes only, one without gets all',
    area: 'routing',
    ref: 0,
    needs: { capabilities: ['routing'] },
    run: (ctx) =>
      eachGetsItsOwn(
        ctx,
        ['eu.created', 'eu.paid', undefined, 'us.created', 'eu', 'eu.created.now', 'EU.created'],
        [
          [undefined, [0, 1, 2, 3, 4, 5, 6]],
          [
            ['eu.created', 'eu.paid'],
            [0, 1],
          ],
          [['us.created'], [3]],
          [['created'], []],
        ],
      ),
  }),

  check({
    id: 'routing.wildcards',
    title: "'*' stands for one word, '#' for any number; what matches twice comes once",
    area: 'routing',
    ref: 0,
    needs: { capabilities: ['wildcard routing'] },
    run: (ctx) =>
      eachGetsItsOwn(
        ctx,
        [undefined, 'eu', 'created', 'eu.created', 'us.created', 'eu.a.created', 'eu.a.b.created'],
        [
          [['#'], [0, 1, 2, 3, 4, 5, 6]],
          [['*'], [1, 2]],
          [['eu.*'], [3]],
          [['eu.#'], [1, 3, 5, 6]],
          [['*.created'], [3, 4]],
          [['#.created'], [2, 3, 4, 5, 6]],
          [['eu.#.created'], [3, 5, 6]],
          [['eu.*.created'], [5]],
          [
            ['*.#.created', 'eu.#', 'us.created'],
            [1, 3, 4, 5, 6],
          ],
        ],
      ),
  }),

  check({
    id: 'routing.offline',
    title: 'The routes of a group hold while none of its members is there',
    area: 'routing',
    ref: 0,
    needs: { capabilities: ['routing'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const options = { group: ctx.group(), routes: ['b', 'a'] }
      await createGroup(ctx, to, options.group, { routes: options.routes })
      await publishRouted(bus, to, ['a', 'c', 'b', undefined])
      // The same choice, said in another order.
      const { seen, has } = await ctx.collect(bus, to, { ...options, routes: ['a', 'b', 'a'] })
      await has(2)
      await settleDown(ctx)
      same(numbersOf(seen).sort(), [0, 2], 'messages of the group')
    },
  }),

  check({
    id: 'routing.replay',
    title: 'A late group with routes gets the old messages of these routes only',
    area: 'routing',
    ref: 0,
    needs: { capabilities: ['routing', 'replay'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const early = await ctx.collect(bus, to, { group: ctx.group('early') })
      await publishRouted(bus, to, ['a', undefined, 'b', 'a'])
      await early.has(4)
      const options = { group: ctx.group('late'), from: 'earliest', routes: ['a'] } as const
      const late = await ctx.collect(bus, to, options)
      await late.has(2)
      await settleDown(ctx)
      same(numbersOf(late.seen).sort(), [0, 3], 'seen by the late group')
    },
  }),

  ...routedFlows,
]
