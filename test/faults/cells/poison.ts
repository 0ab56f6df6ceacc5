import { type Check, check, type Entry, ensure, Ledger, same } from '@longshore/conformance'
import type { SubscribeOptions } from '@longshore/core'
import { type Context, emptied, numbered } from '../shared.js'

type OnFailure = NonNullable<SubscribeOptions['onKeyFailure']>

const keys = 8
const each = 20
const poison = 5

const all: readonly Entry[] = Array.from({ length: keys * each }, (_, i) => ({
  producer: 'p',
  key: `k${i % keys}`,
  n: Math.floor(i / keys),
}))

const isPoison = ({ key, n }: Entry) => key === 'k0' && n === poison

/** Eight keys; number 5 of the first one fails until it is healed. Two members share the group. */
async function poisoned(ctx: Context, onKeyFailure: OnFailure) {
  const to = numbered(ctx.topic())
  const group = ctx.group()
  const ledger = new Ledger()
  const state = { healed: false, attempts: 0, passed: 0 }
  const options: SubscribeOptions = {
    group,
    order: 'key',
    onKeyFailure,
    concurrency: 4,
    retry: { attempts: 3, base: 400, factor: 1, jitter: 0 },
  }
  const buses = await Promise.all([ctx.connect(), ctx.connect()])
  const members = ctx.capabilities.order === 'key' ? buses : buses.slice(0, 1)
  for (const bus of members) {
    await ctx.collect(bus, to, options, (entry) => {
      if (isPoison(entry) && !state.healed) {
        state.attempts++
        throw new Error('poison')
      }
      if (entry.key === 'k0' && entry.n > poison && state.attempts < 3) state.passed++
      ledger.see(entry)
    })
  }
  const bus = buses[0]!
  const begun = performance.now()
  const outcomes = await bus.publishBatch(
    to,
    all.map((payload) => ({ payload })),
  )
  same(
    outcomes.filter(({ status }) => status !== 'confirmed'),
    [],
    'failed publishes',
  )
  for (const entry of all) ledger.confirm(entry)
  const letters = bus.deadLetters(to.name, group)
  const buried = async (count: number) => {
    let dead = 0
    await ctx.until(
      async () => {
        dead = await letters.count()
        return dead >= count && ledger.missing().length === count
      },
      () =>
        `${count} dead letters and the rest handled; ${dead} and ${JSON.stringify(ledger.counts())}`,
      20_000,
    )
    same(dead, count, 'dead letters')
    same(ledger.counts().orderBreaks, 0, 'order breaks')
    same(state.attempts, 3, 'attempts of the poison')
  }
  const finish = async () => {
    await ctx.until(
      () => ledger.missing().length === 0,
      () => `what was redriven; ${JSON.stringify(ledger.counts())}`,
      20_000,
    )
    await emptied(ctx, { bus, to, group })
    same(await letters.count(), 0, 'dead letters left')
    const { duplicates } = ledger.counts()
    ctx.count({ ...ledger.verify({ duplicates: 0 }), duplicates, allowed: 0 })
  }
  const noticed = () => Math.round(performance.now() - begun)
  return { bus, to, group, ledger, letters, state, buried, finish, noticed }
}

const needs = { capabilities: ['order', 'deadLetters'] } as const

export const poisonHeads: readonly Check[] = [
  check({
    id: 'poison-block',
    title: "Poison head with 'block': its key waits until it is dead-lettered, the others flow",
    area: 'order',
    ref: 0,
    timeoutMs: 60_000,
    needs,
    async run(ctx) {
      const { letters, state, buried, finish, noticed } = await poisoned(ctx, 'block')
      await buried(1)
      ctx.count({ noticedMs: noticed() })
      same(state.passed, 0, 'messages that passed it while it was retried')
      state.healed = true
      same(await letters.redrive(), 1, 'redriven')
      await finish()
    },
  }),

  check({
    id: 'poison-skip',
    title: "Poison head with 'skip': later ones of its key pass it",
    area: 'order',
    ref: 0,
    timeoutMs: 60_000,
    needs,
    async run(ctx) {
      const { letters, state, buried, finish, noticed } = await poisoned(ctx, 'skip')
      await buried(1)
      ctx.count({ noticedMs: noticed() })
      ensure(state.passed > 0, 'nothing passed it while it was retried')
      state.healed = true
      same(await letters.redrive(), 1, 'redriven')
      await finish()
    },
  }),

  check({
    id: 'poison-park',
    title:
      "Poison head with 'park': its key goes to the dead letters, in order, until its circuit closes",
    area: 'order',
    ref: 0,
    timeoutMs: 60_000,
    needs: { capabilities: ['order', 'deadLetters', 'circuits'] },
    async run(ctx) {
      const cell = await poisoned(ctx, 'park')
      const { bus, to, group, ledger, letters, state } = cell
      const parked = each - poison - 1
      await cell.buried(parked + 1)
      ctx.count({ noticedMs: cell.noticed() })
      same(state.passed, 0, 'messages that passed it')
      const circuits = bus.circuits(to.name, group)
      same(
        (await circuits.list()).map((circuit) => circuit.key),
        ['k0'],
        'open circuits',
      )
      state.healed = true
      same(await circuits.close('k0', { redrive: true }), true, 'closing the circuit')
      await ctx.until(
        () => ledger.missing().length <= 1,
        () => `the parked ones; ${JSON.stringify(ledger.counts())}`,
      )
      same(ledger.counts().orderBreaks, 0, 'order breaks among the parked ones')
      await letters.redrive()
      await cell.finish()
    },
  }),
]
