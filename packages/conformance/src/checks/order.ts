import type { Bus, SubscribeOptions, Topic } from '@longshore/core'
import { check } from '../check.js'
import type { CheckContext } from '../context.js'
import { ensure, same } from '../expect.js'
import { type Entry, Ledger } from '../ledger.js'
import { gate } from '../until.js'
import { numbered, numbersOf, publishAll } from './shared.js'

type Context = Omit<CheckContext, 'hooks'>

const keys = Array.from({ length: 16 }, (_, i) => `key-${i}`)

/** 1,000 messages over 16 keys, numbered per key. */
function thousand(): Entry[] {
  return Array.from({ length: 1000 }, (_, i) => ({
    producer: 'p',
    key: keys[i % 16]!,
    n: Math.floor(i / 16),
  }))
}

/** Fails a check as soon as two handlers of one key run at once. */
class Overlaps {
  readonly #running = new Map<string, number>()
  found = 0

  async around(key: string, work: () => Promise<unknown>): Promise<void> {
    const running = (this.#running.get(key) ?? 0) + 1
    this.#running.set(key, running)
    if (running > 1) this.found++
    try {
      await work()
    } finally {
      this.#running.set(key, this.#running.get(key)! - 1)
    }
  }
}

/** Lets other handlers come in between, for a time that differs from message to message. */
function shuffle(entry: Entry): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, (entry.n * 7 + entry.key.length) % 4))
}

/** @param ordered false where the driver can't: then nothing may be lost all the same */
async function inOrder(ctx: Context, members: number, ordered = true): Promise<void> {
  const to = numbered(ctx.topic())
  const group = ctx.group()
  const ledger = new Ledger()
  const overlaps = new Overlaps()
  const order = ordered ? 'key' : 'none'
  const options: SubscribeOptions = { group, order, concurrency: 8 }
  for (let i = 0; i < members; i++) {
    const bus = await ctx.connect()
    await ctx.collect(bus, to, options, (entry) => {
      ledger.see(entry)
      return overlaps.around(entry.key, () => shuffle(entry))
    })
  }
  const publisher = await ctx.connect()
  for (const entry of thousand()) ledger.publish(entry)
  same(await publishAll(publisher, to, thousand()), [], 'failed publishes')
  for (const entry of thousand()) ledger.confirm(entry)
  await ctx.until(
    () => ledger.missing().length === 0,
    () => `all messages; ${JSON.stringify(ledger.counts())}`,
    30_000,
  )
  ctx.count({ ...ledger.verify({ order: ordered, duplicates: 0 }), overlaps: overlaps.found })
  if (ordered) same(overlaps.found, 0, 'times that two handlers of one key ran at once')
}

async function publishKey(bus: Bus, to: Topic<Entry>, key: string, count: number, from = 0) {
  for (let n = from; n < from + count; n++) await bus.publish(to, { producer: 'p', key, n })
}

async function skipping(ctx: Context, ordered: boolean): Promise<void> {
  const to = numbered(ctx.topic())
  const bus = await ctx.connect()
  const options: SubscribeOptions = {
    group: ctx.group(),
    order: ordered ? 'key' : 'none',
    ...(ordered ? { onKeyFailure: 'skip' } : {}),
    concurrency: 4,
    retry: { attempts: 3, base: 1500, factor: 1, jitter: 0 },
  }
  const done: number[] = []
  const { seen } = await ctx.collect(bus, to, options, ({ n }, { attempt }) => {
    if (n === 0 && attempt === 1) throw new Error('once')
    done.push(n)
  })
  await publishKey(bus, to, 'k', 1)
  await ctx.until(() => seen.length === 1, 'the first attempt')
  // Together, so that all of them are there long before the retry is due.
  const rest = [1, 2, 3, 4].map((n) => ({ payload: { producer: 'p', key: 'k', n } }))
  await bus.publishBatch(to, rest)
  await ctx.until(
    () => done.length >= 5,
    () => `5 messages; done are ${done}`,
  )
  if (ordered) same(done, [1, 2, 3, 4, 0], 'done')
  else same(done.sort(), [0, 1, 2, 3, 4], 'done')
}

async function comeAndGo(ctx: Context, ordered: boolean): Promise<void> {
  const to = numbered(ctx.topic())
  const group = ctx.group()
  const ledger = new Ledger()
  const overlaps = new Overlaps()
  const failures = new Map<string, number>()
  const retry = { attempts: 20, base: 30, factor: 1, jitter: 0 }
  const options: SubscribeOptions = {
    group,
    order: ordered ? 'key' : 'none',
    concurrency: 4,
    retry,
  }
  const join = async () => {
    const bus = await ctx.connect()
    const { subscription } = await ctx.collect(bus, to, options, (entry) =>
      overlaps.around(entry.key, async () => {
        await shuffle(entry)
        const name = `${entry.key}/${entry.n}`
        const failed = failures.get(name) ?? 0
        if (entry.n % 10 === 3 && failed < 2) {
          failures.set(name, failed + 1)
          throw new Error('twice')
        }
        ledger.see(entry)
      }),
    )
    return subscription
  }
  const members = [await join(), await join(), await join()]
  const publisher = await ctx.connect()
  const all = Array.from({ length: 320 }, (_, i) => ({
    producer: 'p',
    key: keys[i % 8]!,
    n: Math.floor(i / 8),
  }))
  for (const entry of all) ledger.publish(entry)
  same(await publishAll(publisher, to, all), [], 'failed publishes')
  for (const entry of all) ledger.confirm(entry)
  for (const share of [40, 120, 200]) {
    await ctx.until(
      () => ledger.counts().seen >= share,
      () => `${share} handled; ${JSON.stringify(ledger.counts())}`,
      30_000,
    )
    const [leaving] = members.splice(0, 1)
    const [joined] = await Promise.all([join(), leaving!.close()])
    members.push(joined)
  }
  await ctx.until(
    () => ledger.missing().length === 0,
    () => `all messages; ${JSON.stringify(ledger.counts())}`,
    45_000,
  )
  ctx.count({ ...ledger.verify({ order: ordered, duplicates: 0 }), overlaps: overlaps.found })
  if (ordered) same(overlaps.found, 0, 'times that two handlers of one key ran at once')
}

async function crashing(ctx: Context, ordered: boolean): Promise<void> {
  const to = numbered(ctx.topic())
  const group = ctx.group()
  const ledger = new Ledger()
  const victim = await ctx.member({
    topic: to.name,
    group,
    role: 'consume',
    behaviour: { slow: 15 },
    options: { order: ordered ? 'key' : 'none', concurrency: 4 },
  })
  const publisher = await ctx.connect()
  const all = Array.from({ length: 160 }, (_, i) => ({
    producer: 'p',
    key: keys[i % 8]!,
    n: Math.floor(i / 8),
  }))
  for (const entry of all) ledger.publish(entry)
  same(await publishAll(publisher, to, all), [], 'failed publishes')
  for (const entry of all) ledger.confirm(entry)
  await ctx.until(
    () => victim.handled.length >= 30,
    () => `30 handled by the victim; ${victim.handled.length} were ${victim.errors.join()}`,
    20_000,
  )
  await victim.kill()
  for (const handling of victim.handled) ledger.see(handling)
  const heir = await ctx.connect()
  await ctx.collect(heir, to, { group, order: ordered ? 'key' : 'none', concurrency: 4 }, (entry) =>
    ledger.see(entry),
  )
  await ctx.until(
    () => ledger.missing().length === 0,
    () => `all messages; ${JSON.stringify(ledger.counts())}`,
    60_000,
  )
  ctx.count(ledger.verify({ order: ordered, duplicates: 8 }))
}

export const order = [
  check({
    id: 'order.one-consumer',
    title: '1,000 messages of 16 keys, one consumer: order per key',
    area: 'order',
    ref: 36,
    noLoss: true,
    timeoutMs: 60_000,
    needs: { capabilities: ['order'] },
    otherwise: (ctx) => inOrder(ctx, 1, false),
    run: (ctx) => inOrder(ctx, 1),
  }),

  check({
    id: 'order.ten-consumers',
    title: '1,000 messages of 16 keys, ten consumers in one group: order per key',
    area: 'order',
    ref: 37,
    noLoss: true,
    timeoutMs: 90_000,
    needs: { capabilities: ['order across members'] },
    otherwise: (ctx) => inOrder(ctx, 10, false),
    run: (ctx) => inOrder(ctx, 10),
  }),

  check({
    id: 'order.key-through-retries',
    title: "'block': a failing message holds its key back through two failures, and no other key",
    area: 'order',
    ref: 38,
    needs: { capabilities: ['order'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const handled: string[] = []
      const retry = { attempts: 5, base: 600, factor: 1, jitter: 0 }
      const options: SubscribeOptions = { group, order: 'key', concurrency: 4, retry }
      const members = ctx.capabilities.order === 'key' ? 3 : 1
      let publisher: Bus | undefined
      for (let i = 0; i < members; i++) {
        const bus = await ctx.connect()
        publisher ??= bus
        await ctx.collect(bus, to, options, (entry, { attempt }) => {
          const fails = entry.key === 'bad' && entry.n === 0 && attempt < 3
          handled.push(`${entry.key}/${entry.n}/${attempt}`)
          if (fails) throw new Error(`attempt ${attempt}`)
        })
      }
      await publishKey(publisher!, to, 'bad', 1)
      await ctx.until(() => handled.length === 1, 'the first attempt')
      await publishKey(publisher!, to, 'good', 5)
      await publishKey(publisher!, to, 'bad', 4, 1)
      const of = (key: string) => handled.filter((one) => one.startsWith(`${key}/`))
      await ctx.until(
        () => of('bad').length >= 7 && of('good').length >= 5,
        () => `5 messages of each key; handled ${handled.join(' ')}`,
      )
      const expected = [1, 2, 3].map((a) => `bad/0/${a}`)
      for (let n = 1; n < 5; n++) expected.push(`bad/${n}/1`)
      same(of('bad'), expected, 'the failing key')
      same(
        of('good'),
        [0, 1, 2, 3, 4].map((n) => `good/${n}/1`),
        'the other key',
      )
      ensure(
        handled.indexOf('good/4/1') < handled.indexOf('bad/0/3'),
        () => `the other key should flow meanwhile; handled ${handled.join(' ')}`,
      )
    },
  }),

  check({
    id: 'order.block-dead-letter',
    title: "'block': when the failing message is dead-lettered, its key goes on in order",
    area: 'order',
    ref: 38,
    needs: { capabilities: ['order'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const retry = { attempts: 2, base: 100, factor: 1, jitter: 0 }
      const bus = await ctx.connect()
      const options = { group: ctx.group(), order: 'key', concurrency: 4, retry } as const
      const { seen } = await ctx.collect(bus, to, options, ({ n }) => {
        if (n === 0) throw new Error('always')
      })
      await publishKey(bus, to, 'bad', 5)
      await ctx.until(
        () => seen.length >= 6,
        () => `6 deliveries; saw ${numbersOf(seen)}`,
      )
      same(numbersOf(seen), [0, 0, 1, 2, 3, 4], 'handled')
    },
  }),

  check({
    id: 'order.skip',
    title: "'skip': later ones of the key pass a failing message",
    area: 'order',
    ref: 40,
    noLoss: true,
    needs: { capabilities: ['order'] },
    otherwise: (ctx) => skipping(ctx, false),
    run: (ctx) => skipping(ctx, true),
  }),

  check({
    id: 'order.slow-key',
    title: 'A slow key does not stall others',
    area: 'order',
    ref: 43,
    needs: { capabilities: ['order'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const bus = await ctx.connect()
      const release = gate()
      ctx.defer(release.open)
      const options = { group: ctx.group(), order: 'key', concurrency: 4 } as const
      const { seen } = await ctx.collect(bus, to, options, async ({ key }) => {
        if (key === 'slow') await release.opened
      })
      await publishKey(bus, to, 'slow', 20)
      for (const key of ['a', 'b', 'c']) await publishKey(bus, to, key, 20)
      const of = (key: string) => numbersOf(seen.filter((one) => one.payload.key === key))
      await ctx.until(
        () => ['a', 'b', 'c'].every((key) => of(key).length === 20),
        () => `the other keys; saw ${['a', 'b', 'c'].map((key) => of(key).length)} of 20 each`,
      )
      same(of('slow'), [0], 'the slow key meanwhile')
      release.open()
      await ctx.until(
        () => of('slow').length === 20,
        () => `the slow key; saw ${of('slow')}`,
      )
      same(
        of('slow'),
        Array.from({ length: 20 }, (_, n) => n),
        'the slow key',
      )
    },
  }),

  check({
    id: 'order.lane-lost',
    title: 'Members that come and go while a key retries: no overlapping handling, order kept',
    area: 'order',
    ref: 49,
    noLoss: true,
    timeoutMs: 90_000,
    needs: { capabilities: ['order across members'] },
    otherwise: (ctx) => comeAndGo(ctx, false),
    run: (ctx) => comeAndGo(ctx, true),
  }),

  check({
    id: 'order.after-crash',
    title: 'After a crash the heir gets the keys of the dead member in order',
    area: 'order',
    ref: 49,
    noLoss: true,
    timeoutMs: 90_000,
    needs: { capabilities: ['order across members'], anyHook: ['program', 'crash'] },
    otherwise: (ctx) => crashing(ctx, false),
    run: (ctx) => crashing(ctx, true),
  }),
]
