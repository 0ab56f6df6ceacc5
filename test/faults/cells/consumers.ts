import { check, ensure, Ledger } from '@longshore/conformance'
import { Load, pause } from '../load.js'
import { drain, figures, nameOf, numbered } from '../shared.js'

export const consumers = [
  check({
    id: 'consumer-killed',
    title: 'SIGKILL of a consumer in its handlers, under load: another one gets all that it held',
    area: 'settle',
    ref: 0,
    noLoss: true,
    timeoutMs: 90_000,
    needs: { anyHook: ['program', 'crash'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const concurrency = 5
      const options = { concurrency, prefetch: 2 * concurrency }
      const behaviour = { slow: 30 }
      const victim = await ctx.member({
        topic: to.name,
        group,
        role: 'consume',
        behaviour,
        options,
      })
      const bus = await ctx.connect()
      const arrived = new Map<string, number>()
      await ctx.collect(bus, to, { group, ...options }, async (entry) => {
        if (!arrived.has(nameOf(entry))) arrived.set(nameOf(entry), performance.now())
        await pause(2)
        ledger.see(entry)
      })
      const load = new Load(ledger, (entry) => bus.publish(to, entry), { lanes: 10 })
      await ctx.until(
        () => victim.handled.length >= 30 && victim.started.length > victim.handled.length,
        () => `30 handled by the victim; ${victim.handled.length} were ${victim.errors.join()}`,
        30_000,
      )
      const killedAt = performance.now()
      await victim.kill()
      for (const handling of victim.handled) ledger.see(handling)
      const handled = new Set(victim.handled.map(nameOf))
      const held = victim.started.map(nameOf).filter((name) => !handled.has(name))
      ensure(held.length > 0, 'it held nothing when it was killed')
      const back = () => held.filter((name) => (arrived.get(name) ?? 0) > killedAt)
      await ctx.until(
        () => back().length === held.length,
        () => `what it held (${held}) to come back; ${back()} did`,
        45_000,
      )
      await drain(ctx, load, ledger, { bus, to, group })
      const noticedMs = Math.round(Math.min(...held.map((name) => arrived.get(name)!)) - killedAt)
      // What was handled but whose ack was still on its way.
      ctx.count(ledger.verify({ duplicates: concurrency }))
      ctx.count(figures({ allowed: concurrency, noticedMs, held: held.length }))
    },
  }),
]
