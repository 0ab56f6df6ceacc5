import { check } from '../check.js'
import { FreezableClock } from '../clock.js'
import { ensure, same } from '../expect.js'
import { Ledger } from '../ledger.js'
import { gate } from '../until.js'
import { all, entries, numbered, publishAll } from './shared.js'

export const crash = [
  check({
    id: 'settle.sigkill',
    title: 'SIGKILL in the middle of handling: another consumer gets everything unacked',
    area: 'settle',
    ref: 28,
    noLoss: true,
    timeoutMs: 90_000,
    needs: { anyHook: ['program', 'crash'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const behaviour = { slow: 20 }
      const options = { concurrency: 5, prefetch: 10 }
      const spec = { topic: to.name, group, role: 'consume', behaviour, options } as const
      const victim = await ctx.member(spec)
      const bus = await ctx.connect()
      for (const entry of entries(100)) ledger.publish(entry)
      same(await publishAll(bus, to, entries(100)), [], 'failed publishes')
      for (const entry of entries(100)) ledger.confirm(entry)
      await ctx.until(
        () => victim.handled.length >= 20,
        () => `20 handled by the victim; ${victim.handled.length} were ${victim.errors.join()}`,
        30_000,
      )
      await victim.kill()
      for (const handling of victim.handled) ledger.see(handling)
      await ctx.collect(bus, to, { group, concurrency: 10 }, (entry) => ledger.see(entry))
      await ctx.until(
        () => ledger.missing().length === 0,
        () => `the heir to get the rest; ${JSON.stringify(ledger.counts())}`,
        60_000,
      )
      // What was handled but whose ack was still on its way may come again, and no more.
      ctx.count(ledger.verify({ duplicates: 5 }))
      ctx.count({ handledByVictim: victim.handled.length })
    },
  }),

  check({
    id: 'settle.lease-renewed',
    title: "A running handler's heartbeat keeps its delivery past the lease",
    area: 'settle',
    ref: 27,
    needs: { capabilities: ['lease'] },
    timeoutMs: 60_000,
    async run(ctx) {
      const bus = await ctx.connect()
      const other = await ctx.connect()
      const to = numbered(ctx.topic())
      const lease = 1000
      const options = { group: ctx.group(), concurrency: 1, prefetch: 1, lease }
      const begun: number[] = []
      let done = 0
      const handler = async ({ n }: { n: number }) => {
        begun.push(n)
        if (n === 0) await new Promise((resolve) => setTimeout(resolve, lease * 3.5))
        done++
      }
      await ctx.collect(bus, to, options, handler)
      await ctx.collect(other, to, options, handler)
      await bus.publish(to, { producer: 'p', key: 'k', n: 0 })
      await ctx.until(() => done === 1, 'the long handler', 20_000)
      await bus.publish(to, { producer: 'p', key: 'k', n: 1 })
      await ctx.until(() => begun.includes(1), 'the message after it')
      same(begun.filter((n) => n === 0).length, 1, 'deliveries of the message that took 3.5 leases')
    },
  }),

  check({
    id: 'settle.lease-lapses',
    title:
      'Unsettled past its lease, a delivery of a hanging consumer goes to an heir; the late ack is fenced',
    area: 'settle',
    ref: 27,
    timeoutMs: 60_000,
    needs: { capabilities: ['lease'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      // The heir's connection comes first: a broker within the process takes its time from a clock that goes on.
      const heir = await ctx.connect()
      const clock = new FreezableClock()
      const zombie = await ctx.connect({ clock })
      const release = gate()
      ctx.defer(() => {
        clock.thaw()
        release.open()
      })
      const options = { group, concurrency: 1, prefetch: 1, lease: 1000 }
      const late: boolean[] = []
      const first = await ctx.collect(zombie, to, options, async (_, context) => {
        await release.opened
        late.push(await context.ack())
      })
      await heir.publish(to, { producer: 'p', key: 'k', n: 0 })
      await first.has(1)
      clock.freeze()
      const second = await ctx.collect(heir, to, options)
      await second.has(1, 30_000)
      same(second.seen[0]!.message.id, first.seen[0]!.message.id, 'id of what the heir got')
      same(second.seen[0]!.attempt, 1, 'attempt')
      clock.thaw()
      release.open()
      await ctx.until(() => late.length > 0, "the zombie's ack")
      same(late, [false], "the zombie's ack")
    },
  }),

  check({
    id: 'settle.poison-process',
    title: 'A message that kills its process is dead-lettered after N deliveries',
    area: 'settle',
    ref: 32,
    timeoutMs: 90_000,
    needs: { capabilities: ['deliveryCount', 'deadLetters'], anyHook: ['program', 'crash'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const bus = await ctx.connect()
      const maxDeliveries = 3
      const spec = {
        topic: to.name,
        group,
        role: 'consume',
        behaviour: 'die',
        options: { retry: { maxDeliveries } },
      } as const
      let member = await ctx.member(spec)
      await bus.publish(to, { producer: 'p', key: 'k', n: 0 })
      const deliveries: number[] = []
      for (let round = 0; round < maxDeliveries; round++) {
        await ctx.until(
          () => member.dead,
          () => `delivery ${round + 1} to kill its process ${member.errors.join()}`,
          30_000,
        )
        deliveries.push(...member.started.map((one) => one.deliveries))
        member = await ctx.member(spec)
      }
      const letters = bus.deadLetters(to.name, group)
      await ctx.until(
        async () => (await letters.count()) > 0,
        () => `the dead letter; deliveries were ${deliveries}, errors ${member.errors.join()}`,
        30_000,
      )
      same(deliveries, [1, 2, 3], 'deliveries counted')
      const [letter] = await all(letters.list())
      same(letter?.failure.reason, 'delivery-limit', 'reason')
      ensure(!member.dead, 'the message killed one process more than allowed')
    },
  }),
]
