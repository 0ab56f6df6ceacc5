import { type Check, check, Ledger, type Member, same } from '@longshore/conformance'
import type { SubscribeOptions } from '@longshore/core'
import { Diary } from '../diary.js'
import { Load, pause } from '../load.js'
import { drain, numbered } from '../shared.js'

const concurrency = 4
const kills = 2

export const members: readonly Check[] = [
  check({
    id: 'members-come-and-go',
    title:
      'Members of an ordered group join, leave and are killed under load: the order of each key holds',
    area: 'order',
    ref: 0,
    timeoutMs: 120_000,
    needs: { capabilities: ['order across members'], anyHook: ['program', 'crash'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const diary = new Diary(ledger)
      const options: SubscribeOptions = { group, order: 'key', concurrency }
      const join = async () => {
        const bus = await ctx.connect()
        const { subscription } = await ctx.collect(bus, to, options, async (entry) => {
          await pause((entry.n * 7) % 4)
          diary.see(entry)
        })
        return subscription
      }
      const spec = { topic: to.name, group, role: 'consume', behaviour: { slow: 4 } } as const
      const joinToDie = () => ctx.member({ ...spec, options: { order: 'key', concurrency } })
      const progress = async (victim?: Member) => {
        const target = ledger.counts().seen + 150
        await ctx.until(
          () => {
            diary.read()
            return ledger.counts().seen >= target
          },
          () => `150 more; ${JSON.stringify(ledger.counts())} ${victim?.errors.join() ?? ''}`,
          30_000,
        )
      }

      // The victim is first, so that it surely gets some of the keys.
      const present = []
      let victim = await joinToDie()
      diary.follow(victim)
      present.push(await join())
      const bus = await ctx.connect()
      const load = new Load(ledger, (entry) => bus.publish(to, entry), { lanes: 16 })
      for (let round = 0; round < kills; round++) {
        await progress(victim)
        present.push(await join())
        await progress(victim)
        await victim.kill()
        diary.read()
        await progress()
        victim = await joinToDie()
        diary.follow(victim)
        // So that the new victim inherits keys.
        for (const leaving of present.splice(0)) await leaving.close()
        await progress(victim)
        present.push(await join())
      }
      await victim.kill()
      diary.read()
      await drain(ctx, load, ledger, { bus, to, group })
      same(load.unknown, 0, 'publishes whose outcome stayed unknown')
      const allowed = (kills + 1) * concurrency
      const { orderBreaks } = diary.inOrder().verify({ order: true })
      ctx.count({ ...ledger.verify({ duplicates: allowed }), orderBreaks, allowed })
    },
  }),
]
