import { type Check, check, Ledger, same } from '@longshore/conformance'
import { Load, pause } from '../load.js'
import { type Context, drain, figures, flows, numbered, Watch } from '../shared.js'
import type { FaultTarget } from '../target.js'

const lanes = 20
const prefetch = 20

/** The broker goes away and comes back while 20 publishers and a consumer are at it. */
async function restarting(ctx: Context, restart: () => Promise<void>): Promise<void> {
  const to = numbered(ctx.topic())
  const group = ctx.group()
  const ledger = new Ledger()
  const bus = await ctx.connect()
  await ctx.collect(bus, to, { group, concurrency: 10, prefetch }, async (entry) => {
    await pause(1)
    ledger.see(entry)
  })
  const publisher = await ctx.connect({ publish: { deadline: '2m' } })
  const load = new Load(ledger, (entry) => publisher.publish(to, entry), { lanes })
  await flows(ctx, ledger, 300)
  const watch = new Watch(ctx, bus)
  await restart()
  await flows(ctx, ledger, 300, 60_000)
  await drain(ctx, load, ledger, { bus, to, group }, 60_000)
  same(load.unknown, 0, 'publishes whose outcome stayed unknown')
  // Publishes that were under way are repeated, deliveries that were unsettled come again.
  const allowed = lanes + prefetch
  ctx.count(ledger.verify({ duplicates: allowed }))
  ctx.count(figures({ allowed, noticedMs: watch.first('down'), backMs: watch.last('up') }))
}

export const broker = (target: FaultTarget): readonly Check[] => [
  check({
    id: 'broker-restarted',
    title: 'The broker restarts under load: everything goes on',
    area: 'connection',
    ref: 0,
    noLoss: true,
    timeoutMs: 180_000,
    needs: { hooks: ['restart'] },
    run: (ctx) => restarting(ctx, () => ctx.hooks.restart()),
  }),

  check({
    id: 'broker-crashed',
    title: 'SIGKILL of the broker under load: what it had confirmed is there when it comes back',
    area: 'connection',
    ref: 0,
    noLoss: true,
    timeoutMs: 180_000,
    async run(ctx) {
      const { crashBroker } = target
      if (!crashBroker) return ctx.skip("the target has no hook 'crashBroker'")
      await restarting(ctx, () => crashBroker.call(target))
    },
  }),
]
