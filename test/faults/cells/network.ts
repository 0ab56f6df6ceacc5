import { check, ensure, Ledger, rejects, same, TcpProxy } from '@longshore/conformance'
import { silentLogger } from '@longshore/core'
import { Load } from '../load.js'
import { random, seed } from '../random.js'
import { drain, figures, flows, nameOf, numbered, Watch } from '../shared.js'

const lanes = 20
const prefetch = 20

export const network = [
  check({
    id: 'cut-in-mid-publish',
    title: 'Connections cut in mid-publish, half of the times after confirmations got lost',
    area: 'publish',
    ref: 0,
    noLoss: true,
    timeoutMs: 90_000,
    needs: { anyHook: ['severConnections', 'proxy'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const ids = new Map<string, Set<string>>()
      const consumer = await ctx.connect()
      const options = { group, concurrency: 10, prefetch }
      await ctx.collect(consumer, to, options, (entry, { message }) => {
        const name = nameOf(entry)
        ids.set(name, (ids.get(name) ?? new Set()).add(message.id))
        ledger.see(entry)
      })
      const net = await ctx.network()
      const publisher = await net.connect({ publish: { deadline: '1m' } })
      const watch = new Watch(ctx, publisher)
      const publish = (entry: Parameters<typeof nameOf>[0]) =>
        publisher.publish(to, entry, { id: `${ctx.runId}/${nameOf(entry)}` })
      const load = new Load(ledger, publish, { lanes })
      const cuts = 6
      for (let cut = 0; cut < cuts; cut++) {
        await flows(ctx, ledger, 150)
        if (cut === 0) watch.mark()
        if (cut % 2 === 0) {
          await net.sever()
          continue
        }
        await net.loseConfirms(to.name)
        await ctx.until(() => load.underway === lanes, 'all publishers to wait for confirmations')
        await net.heal()
      }
      await flows(ctx, ledger, 150)
      await drain(ctx, load, ledger, { bus: consumer, to, group })
      same(load.unknown, 0, 'publishes whose outcome stayed unknown')
      const foreign = [...ids].filter(
        ([name, copies]) => copies.size > 1 || !copies.has(`${ctx.runId}/${name}`),
      )
      same(foreign, [], 'messages that came under another id')
      // Where the consumer's connection is cut as well, its unsettled deliveries come again.
      const allowed = cuts * (lanes + prefetch)
      ctx.count(ledger.verify({ duplicates: allowed }))
      ctx.count(figures({ allowed, noticedMs: watch.first('down') }))
    },
  }),

  check({
    id: 'half-open',
    title: 'A network that swallows all bytes is noticed, and nothing hangs meanwhile',
    area: 'connection',
    ref: 0,
    noLoss: true,
    timeoutMs: 120_000,
    needs: { hooks: ['proxy'] },
    async run(ctx) {
      const hook = ctx.hooks.proxy
      const proxy = await TcpProxy.start({ host: hook.host, port: hook.port })
      ctx.defer(() => proxy.close())
      const through = async () =>
        ctx.adopt(
          await hook.connect(proxy.host, proxy.port, {
            logger: silentLogger,
            publish: { deadline: '2m' },
          }),
        )
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const bus = await through()
      const other = await through()
      const options = { group, concurrency: 10, prefetch }
      await ctx.collect(bus, to, options, (entry) => ledger.see(entry))
      const load = new Load(ledger, (entry) => bus.publish(to, entry), { lanes })
      await flows(ctx, ledger, 200)
      const watch = new Watch(ctx, bus)
      proxy.swallow()
      const probe = { producer: 'probe', key: 'probe', n: 0 }
      ledger.publish(probe)
      const codes = ['LONGSHORE_OUTCOME_UNKNOWN', 'LONGSHORE_NOT_SENT']
      await ctx.within(
        rejects(bus.publish(to, probe, { deadline: 1000 }), codes, 'publishing into the void'),
        'a publish to end at its deadline of 1000 ms',
        3000,
      )
      await ctx.within(other.close({ timeout: 500 }), 'closing with a timeout of 500 ms', 3000)
      await ctx.until(
        () => bus.health().status === 'down',
        'the dead connection to be noticed',
        ctx.tolerances.heartbeatMs,
      )
      proxy.restore()
      proxy.cut()
      await flows(ctx, ledger, 200)
      await drain(ctx, load, ledger, { bus, to, group })
      same(load.unknown, 0, 'publishes whose outcome stayed unknown')
      const allowed = lanes + prefetch
      ctx.count(ledger.verify({ duplicates: allowed }))
      ctx.count(figures({ allowed, noticedMs: watch.first('down') }))
    },
  }),

  check({
    id: 'slow-and-flaky',
    title:
      '500 ms latency with 5 % resets, after a time without any network: it backs off, recovers',
    area: 'connection',
    ref: 0,
    noLoss: true,
    timeoutMs: 240_000,
    needs: { hooks: ['proxy'] },
    async run(ctx) {
      const hook = ctx.hooks.proxy
      const proxy = await TcpProxy.start({ host: hook.host, port: hook.port, random: random(seed) })
      ctx.defer(() => proxy.close())
      const through = async () =>
        ctx.adopt(
          await hook.connect(proxy.host, proxy.port, {
            logger: silentLogger,
            publish: { deadline: '3m' },
          }),
        )
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const consumer = await through()
      const publisher = await through()
      const options = { group, concurrency: 10, prefetch }
      await ctx.collect(consumer, to, options, (entry) => ledger.see(entry))
      const load = new Load(ledger, (entry) => publisher.publish(to, entry), { lanes })
      await flows(ctx, ledger, 100)

      const watch = new Watch(ctx, publisher)
      const links = proxy.connections
      const { accepted } = proxy
      proxy.refuse()
      proxy.cut()
      const cutAt = performance.now()
      await ctx.until(
        () => proxy.accepted - accepted >= 4 * links,
        () => `${4 * links} attempts to connect; there were ${proxy.accepted - accepted}`,
        30_000,
      )
      const attemptsMs = Math.round(performance.now() - cutAt)
      ensure(attemptsMs >= 100, `it tried 4 times in ${attemptsMs} ms: that is no backing off`)

      proxy.restore()
      proxy.delay(400, 200)
      proxy.resetShare(0.05)
      await flows(ctx, ledger, 60, 120_000)
      proxy.restore()
      await drain(ctx, load, ledger, { bus: consumer, to, group }, 60_000)
      same(load.unknown, 0, 'publishes whose outcome stayed unknown')
      // Each connection that was lost had at most so much unconfirmed and unsettled.
      const allowed = (proxy.accepted - accepted) * (lanes + prefetch)
      ctx.count(ledger.verify({ duplicates: allowed }))
      ctx.count(figures({ allowed, noticedMs: watch.first('down'), attemptsMs, seed }))
    },
  }),
]
