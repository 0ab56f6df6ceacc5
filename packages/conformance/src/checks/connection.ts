import { silentLogger } from '@longshore/core'
import { check } from '../check.js'
import { codeOf, ensure, rejects, same } from '../expect.js'
import { type Entry, Ledger } from '../ledger.js'
import { TcpProxy } from '../proxy.js'
import { entries, numbered, numbersOf } from './shared.js'

export const connection = [
  check({
    id: 'connection.restarts-under-load',
    title: 'Two broker restarts under 10,000 messages from 100 publishers: none lost',
    area: 'connection',
    ref: 59,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 180_000,
    needs: { hooks: ['restart'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const ledger = new Ledger()
      const consumer = await ctx.connect()
      await ctx.collect(consumer, to, { group: ctx.group(), concurrency: 50 }, (e) => ledger.see(e))
      const options = { publish: { deadline: '2m' } } as const
      const buses = await Promise.all(Array.from({ length: 4 }, () => ctx.connect(options)))
      const failures: string[] = []
      const restarts: Promise<void>[] = []
      const publishers = Array.from({ length: 100 }, async (_, p) => {
        for (const entry of entries(100, 'k', `p${p}`)) {
          ledger.publish(entry)
          try {
            await buses[p % 4]!.publish(to, entry)
            ledger.confirm(entry)
            // In the midst of it, so that it surely hits the load.
            if (ledger.confirmed === 2500 || ledger.confirmed === 6000) {
              const restart = ctx.hooks.restart()
              restart.catch(() => {})
              restarts.push(restart)
            }
          } catch (error) {
            failures.push(codeOf(error))
          }
        }
      })
      await ctx.within(Promise.all(publishers), 'all publishers to end', 120_000)
      same(failures, [], 'publishes that failed')
      await Promise.all(restarts)
      same(restarts.length, 2, 'restarts')
      await ctx.until(
        () => ledger.missing().length === 0,
        () => `all confirmed messages; ${JSON.stringify(ledger.counts())}`,
        60_000,
      )
      ctx.count(ledger.verify())
      same(ledger.counts().confirmed, 10_000, 'confirmed')
    },
  }),

  check({
    id: 'connection.cut-while-consuming',
    title: 'Connections cut while consuming: subscriptions resume, nothing is lost',
    area: 'connection',
    ref: 59,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 90_000,
    needs: { hooks: ['severConnections'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const ledger = new Ledger()
      const consumer = await ctx.connect()
      const options = { group: ctx.group(), concurrency: 5 }
      await ctx.collect(consumer, to, options, async (entry) => {
        await new Promise((resolve) => setTimeout(resolve, 1))
        ledger.see(entry)
      })
      const publisher = await ctx.connect()
      for (const entry of entries(600)) {
        ledger.publish(entry)
        await publisher.publish(to, entry)
        ledger.confirm(entry)
        if (entry.n % 150 === 100) await ctx.hooks.severConnections()
      }
      await ctx.until(
        () => ledger.missing().length === 0,
        () => `all messages; ${JSON.stringify(ledger.counts())}`,
        60_000,
      )
      // Four cuts, and as many deliveries in hand at each as may be unsettled.
      ctx.count(ledger.verify({ duplicates: 4 * 10 }))
    },
  }),

  check({
    id: 'connection.topology-recreated',
    title: 'Topology deleted behind our back is recreated on reconnect',
    area: 'connection',
    ref: 60,
    schedule: 'alone',
    timeoutMs: 90_000,
    needs: { hooks: ['deleteTopology', 'severConnections'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const bus = await ctx.connect()
      const { seen, subscription } = await ctx.collect(bus, to, { group })
      await bus.publish(to, { producer: 'p', key: 'k', n: 0 })
      await ctx.until(() => seen.length === 1, 'the message before')
      await ctx.hooks.deleteTopology(to.name, group)
      await ctx.hooks.severConnections()
      let n = 0
      // What is published before all is restored may be lost with what was deleted, so again until one arrives.
      await ctx.until(
        async () => {
          n++
          await bus.publish(to, { producer: 'p', key: 'k', n }, { deadline: '5s' }).catch(() => {})
          return seen.length > 1
        },
        () => `a message after the topology was deleted; the subscription is ${subscription.state}`,
        60_000,
      )
      const from = n + 1
      for (n = from; n < from + 20; n++) await bus.publish(to, { producer: 'p', key: 'k', n })
      await ctx.until(
        () => numbersOf(seen).filter((one) => one >= from).length >= 20,
        () => `20 messages more; saw ${numbersOf(seen)}`,
      )
    },
  }),

  check({
    id: 'connection.down-at-start',
    title: 'A broker that is down at start obeys the connect deadline',
    area: 'connection',
    ref: 61,
    schedule: 'alone',
    timeoutMs: 60_000,
    needs: { hooks: ['stopBroker', 'startBroker'] },
    async run(ctx) {
      await ctx.hooks.stopBroker()
      const begun = Date.now()
      await ctx.within(
        rejects(
          ctx.connect({ connectTimeout: 1000 }),
          'LONGSHORE_CONNECTION',
          'connecting to a broker that is down',
        ),
        'the connect deadline of 1000 ms',
        5000,
      )
      const took = Date.now() - begun
      ensure(took <= 3000, `it gave up after ${took} ms, with a connect timeout of 1000 ms`)
      await ctx.hooks.startBroker()
      const bus = await ctx.connect()
      same(bus.health().status, 'up', 'health after the broker came up')
    },
  }),

  check({
    id: 'connection.comes-up-late',
    title: 'A connect that waits succeeds when the broker comes up',
    area: 'connection',
    ref: 61,
    schedule: 'alone',
    timeoutMs: 60_000,
    needs: { hooks: ['stopBroker', 'startBroker'] },
    async run(ctx) {
      await ctx.hooks.stopBroker()
      const connecting = ctx.connect({ connectTimeout: '30s' })
      connecting.catch(() => {})
      await new Promise((resolve) => setTimeout(resolve, 500))
      await ctx.hooks.startBroker()
      const bus = await ctx.within(connecting, 'the connect to succeed', 30_000)
      const to = numbered(ctx.topic())
      const { has } = await ctx.collect(bus, to, { group: ctx.group() })
      await bus.publish(to, { producer: 'p', key: 'k', n: 0 })
      await has(1)
    },
  }),

  check({
    id: 'connection.health',
    title: 'Health turns down and up with the broker',
    area: 'connection',
    ref: 0,
    schedule: 'alone',
    timeoutMs: 60_000,
    needs: { hooks: ['stopBroker', 'startBroker'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const states: string[] = []
      ctx.defer(bus.on('connection', (event) => states.push(event.state)))
      same(bus.health().status, 'up', 'health')
      await ctx.hooks.stopBroker()
      await ctx.until(() => bus.health().status === 'down', 'health to turn down', 30_000)
      await ctx.hooks.startBroker()
      await ctx.until(() => bus.health().status === 'up', 'health to turn up', 30_000)
      same([states[0], states.at(-1)], ['down', 'up'], "first and last of the events 'connection'")
    },
  }),

  check({
    id: 'connection.bad-credentials',
    title: 'A wrong password surfaces once, typed, and does not loop',
    area: 'connection',
    ref: 62,
    needs: { hooks: ['connectWithBadCredentials'] },
    async run(ctx) {
      const begun = Date.now()
      const connecting = ctx.hooks.connectWithBadCredentials({
        connectTimeout: '20s',
        logger: silentLogger,
      })
      await ctx.within(
        rejects(connecting, 'LONGSHORE_ACCESS', 'connecting with a wrong password'),
        'the refusal',
        10_000,
      )
      const took = Date.now() - begun
      ensure(took < 10_000, `it took ${took} ms: it tried again until the connect deadline`)
    },
  }),

  check({
    id: 'connection.half-open',
    title: 'A half-open connection is noticed within the heartbeat bound',
    area: 'connection',
    ref: 63,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 180_000,
    needs: { hooks: ['proxy'] },
    async run(ctx) {
      const hook = ctx.hooks.proxy
      const proxy = await TcpProxy.start({ host: hook.host, port: hook.port })
      ctx.defer(() => proxy.close())
      const bus = ctx.adopt(
        await hook.connect(proxy.host, proxy.port, {
          logger: silentLogger,
          publish: { deadline: '2m' },
        }),
      )
      const to = numbered(ctx.topic())
      const { seen } = await ctx.collect(bus, to, { group: ctx.group() })
      await bus.publish(to, { producer: 'p', key: 'k', n: 0 })
      await ctx.until(() => seen.length === 1, 'the message before')
      proxy.swallow()
      const begun = Date.now()
      const publishing = bus.publish(to, { producer: 'p', key: 'k', n: 1 })
      publishing.catch(() => {})
      const bound = ctx.tolerances.heartbeatMs
      await ctx.until(
        () => bus.health().status === 'down',
        'the dead connection to be noticed',
        bound,
      )
      ctx.count({ noticedMs: Date.now() - begun })
      proxy.restore()
      proxy.cut()
      await ctx.within(publishing, 'the publish to be confirmed after all', 60_000)
      await ctx.until(() => numbersOf(seen).includes(1), 'the message', 60_000)
    },
  }),

  check({
    id: 'connection.slow-and-flaky',
    title: '500 ms latency with 5 % resets: it recovers, nothing confirmed is lost',
    area: 'connection',
    ref: 63,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 240_000,
    needs: { hooks: ['proxy'] },
    async run(ctx) {
      const hook = ctx.hooks.proxy
      const proxy = await TcpProxy.start({ host: hook.host, port: hook.port })
      ctx.defer(() => proxy.close())
      const through = async () =>
        ctx.adopt(
          await hook.connect(proxy.host, proxy.port, {
            logger: silentLogger,
            connectTimeout: '30s',
            publish: { deadline: '2m' },
          }),
        )
      const to = numbered(ctx.topic())
      const ledger = new Ledger()
      const consumer = await through()
      await ctx.collect(consumer, to, { group: ctx.group(), concurrency: 10 }, (e) => ledger.see(e))
      const publisher = await through()
      proxy.delay(400, 200)
      proxy.resetShare(0.05)
      const failures: string[] = []
      const publishOne = async (entry: Entry) => {
        ledger.publish(entry)
        try {
          await publisher.publish(to, entry)
          ledger.confirm(entry)
        } catch (error) {
          failures.push(codeOf(error))
        }
      }
      const lanes = Array.from({ length: 20 }, async (_, lane) => {
        for (const entry of entries(4, 'k', `p${lane}`)) await publishOne(entry)
      })
      await ctx.within(Promise.all(lanes), 'all publishes to end', 180_000)
      const wrong = failures.filter((code) => code !== 'LONGSHORE_OUTCOME_UNKNOWN')
      same(wrong, [], 'publishes that ended neither confirmed nor unknown')
      proxy.restore()
      await ctx.until(
        () => ledger.missing().length === 0,
        () => `all confirmed messages; ${JSON.stringify(ledger.counts())}`,
        60_000,
      )
      ctx.count({ ...ledger.verify(), unknown: failures.length })
    },
  }),
]
