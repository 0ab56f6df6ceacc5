import type { SubscribeOptions } from '@longshore/core'
import { check } from '../check.js'
import { MemoryCircuits } from '../circuits.js'
import type { CheckContext } from '../context.js'
import { ensure, rejects, same } from '../expect.js'
import { all, numbered, numbersOf, quickRetry } from './shared.js'

/** Where the driver can't park it must refuse to, for else it would have to drop or to block. */
async function refused(ctx: CheckContext): Promise<void> {
  const { order, circuits } = ctx.capabilities
  if (order !== 'none' && circuits) ctx.skip('parked messages can not be looked at')
  const bus = await ctx.connect()
  await rejects(
    () =>
      bus.subscribe(
        ctx.topic(),
        { group: ctx.group(), order: 'key', onKeyFailure: 'park' },
        () => {},
      ),
    'LONGSHORE_UNSUPPORTED',
    "subscribing with 'park'",
  )
}

export const park = [
  check({
    id: 'order.park',
    title:
      "'park': the rest of the key is dead-lettered in order, other keys flow, closing the circuit resumes",
    area: 'order',
    ref: 39,
    noLoss: true,
    needs: { capabilities: ['order', 'deadLetters'] },
    otherwise: refused,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const bus = await ctx.connect()
      const own = ctx.capabilities.circuits ? undefined : new MemoryCircuits()
      const options: SubscribeOptions = {
        group,
        order: 'key',
        onKeyFailure: 'park',
        concurrency: 4,
        retry: { ...quickRetry, attempts: 2 },
        ...(own ? { circuits: own } : {}),
      }
      let broken = true
      const { seen } = await ctx.collect(bus, to, options, ({ key }) => {
        if (key === 'bad' && broken) throw new Error('no')
      })
      const of = (key: string) => numbersOf(seen.filter((one) => one.payload.key === key))
      const letters = bus.deadLetters(to.name, group)
      const parked = async () => await all(letters.list({ reason: 'parked' }))
      const open = () => (own ? own.list(to.name, group) : bus.circuits(to.name, group).list())

      for (let n = 0; n < 6; n++) {
        for (const key of ['bad', 'good']) await bus.publish(to, { producer: 'p', key, n })
      }
      await ctx.until(
        async () => of('good').length === 6 && (await letters.count()) >= 6,
        () => `all good ones and 6 dead letters; good are ${of('good')}, bad ${of('bad')}`,
      )
      same(of('good'), [0, 1, 2, 3, 4, 5], 'the other key')
      same(of('bad'), [0, 0], 'attempts of the failing key')
      same(
        (await parked()).map((letter) => JSON.parse(Buffer.from(letter.body).toString()).n),
        [1, 2, 3, 4, 5],
        'parked, oldest first',
      )
      const first = await all(letters.list({ reason: 'exhausted' }))
      same(first.length, 1, 'dead letters that were not parked')
      same(
        (await open()).map((circuit) => circuit.key),
        ['bad'],
        'open circuits',
      )

      broken = false
      if (own) {
        await letters.redrive({ key: 'bad' })
        same(await own.close(to.name, group, 'bad'), true, 'closing the circuit')
      } else {
        const circuits = bus.circuits(to.name, group)
        same(await circuits.close('bad', { redrive: true }), true, 'closing the circuit')
        same(await circuits.close('bad'), false, 'closing it again')
      }
      await bus.publish(to, { producer: 'p', key: 'bad', n: 6 })
      await ctx.until(
        () => of('bad').includes(6),
        () => `the key to flow again; saw ${of('bad')}`,
      )
      const resumed = of('bad')
        .slice(2)
        .filter((n) => n > 0)
      same(resumed, [1, 2, 3, 4, 5, 6], 'the key after its circuit closed')
      ensure((await open()).length === 0, 'a circuit is still open')
    },
  }),

  check({
    id: 'order.park-across-members',
    title: "'park': the circuit that one member opens holds for all members, and for a new one",
    area: 'order',
    ref: 39,
    noLoss: true,
    needs: { capabilities: ['order across members', 'deadLetters', 'circuits'] },
    otherwise: refused,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const options: SubscribeOptions = {
        group,
        order: 'key',
        onKeyFailure: 'park',
        retry: { ...quickRetry, attempts: 1 },
      }
      const handled: number[] = []
      const join = async () => {
        const bus = await ctx.connect()
        await ctx.collect(bus, to, options, ({ n }) => {
          handled.push(n)
          throw new Error('no')
        })
        return bus
      }
      const first = await join()
      await first.publish(to, { producer: 'p', key: 'bad', n: 0 })
      const letters = first.deadLetters(to.name, group)
      await ctx.until(async () => (await letters.count()) === 1, 'the first dead letter')
      const second = await join()
      const letters2 = second.deadLetters(to.name, group)
      await first.close()
      await second.publish(to, { producer: 'p', key: 'bad', n: 1 })
      await ctx.until(async () => (await letters2.count()) === 2, 'the second dead letter')
      same(handled, [0], 'handled')
      const reasons = (await all(letters2.list())).map((letter) => letter.failure.reason)
      same(reasons, ['exhausted', 'parked'], 'reasons')
    },
  }),
]
