import { type Check, check, ensure, Ledger, same } from '@longshore/conformance'
import { Load } from '../load.js'
import { drain, nameOf, numbered } from '../shared.js'
import { forkWorker, startWorker } from '../worker.js'

/** What the worker asks for, and a slack for the process itself. */
const deadlineMs = 10_000 + 2000

export const draining: readonly Check[] = [
  check({
    id: 'sigterm-under-load',
    title:
      'SIGTERM of a worker under load: it finishes what it began, hands back the rest, exits with 0',
    area: 'lifecycle',
    ref: 0,
    noLoss: true,
    timeoutMs: 90_000,
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const spec = { topic: to.name, group, concurrency: 5, slowMs: 40 }
      const { program } = ctx.hooks
      const worker = program
        ? await forkWorker(program, spec)
        : await startWorker(await ctx.connect(), spec)
      ctx.defer(worker.kill)
      const bus = await ctx.connect()
      const load = new Load(ledger, (entry) => bus.publish(to, entry), { lanes: 20 })
      await ctx.until(
        () => worker.handled.length >= 40,
        () => `40 messages handled by the worker; ${worker.handled.length} were`,
        30_000,
      )
      const begun = performance.now()
      const code = await ctx.within(worker.end(), 'the worker to end', deadlineMs)
      const noticedMs = Math.round(performance.now() - begun)
      same(code, 0, 'exit code')
      const handled = new Set(worker.handled.map(nameOf))
      const cutOff = worker.started.map(nameOf).filter((name) => !handled.has(name))
      same(cutOff, [], 'handlers that were cut off')
      for (const entry of worker.handled) ledger.see(entry)
      ensure(ledger.missing().length > 0, 'it went on until nothing was left')
      await ctx.collect(bus, to, { group, concurrency: 20 }, (entry) => ledger.see(entry))
      await drain(ctx, load, ledger, { bus, to, group })
      // All acks were sent before it left.
      ctx.count({ ...ledger.verify({ duplicates: 0 }), allowed: 0, noticedMs })
    },
  }),
]
