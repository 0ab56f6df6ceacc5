import { type Check, check, Ledger, same } from '@longshore/conformance'
import { PermanentError, type SubscribeOptions } from '@longshore/core'
import { Load, pause } from '../load.js'
import { type Context, drain, figures, flows, numbered } from '../shared.js'

const lanes = 16

type Delete = (topic: string, group: string) => Promise<void>

/** Deletes all that a group has while it consumes, its connection standing. */
async function deleted(ctx: Context, order: 'none' | 'key', remove: Delete) {
  const to = numbered(ctx.topic())
  const group = ctx.group()
  const ledger = new Ledger()
  const bus = await ctx.connect()
  const options: SubscribeOptions = { group, order, concurrency: 10 }
  await ctx.collect(bus, to, options, (entry) => {
    if (entry.producer === 'poison') throw new PermanentError('poison')
    ledger.see(entry)
  })
  const first = { producer: 'first', key: 'k', n: 0 }
  ledger.publish(first)
  await bus.publish(to, first)
  await ctx.until(() => ledger.hasSeen(first), 'the message before')
  await remove(to.name, group)
  const begun = performance.now()
  // What is published until all is there again may go nowhere: that is the deleter's doing. So one of each key.
  const missing = new Set(Array.from({ length: lanes }, (_, lane) => `k${lane}`))
  let n = 0
  await ctx.until(
    async () => {
      const probes = [...missing].map((key) => ({ producer: 'probe', key, n }))
      n++
      for (const probe of probes) ledger.publish(probe)
      const batch = probes.map((payload) => ({ payload }))
      await bus.publishBatch(to, batch, { deadline: '3s' })
      await pause(20)
      for (const probe of probes) if (ledger.hasSeen(probe)) missing.delete(probe.key)
      return missing.size === 0
    },
    () =>
      `messages of all keys after all was deleted (order '${order}'); ${[...missing]} are missing`,
    45_000,
  )
  const noticedMs = Math.round(performance.now() - begun)
  const load = new Load(ledger, (entry) => bus.publish(to, entry), { lanes })
  await flows(ctx, ledger, 300)
  await drain(ctx, load, ledger, { bus, to, group })
  if (ctx.capabilities.deadLetters) {
    await bus.publish(to, { producer: 'poison', key: 'k', n: 0 })
    const letters = bus.deadLetters(to.name, group)
    await ctx.until(async () => (await letters.count()) === 1, 'a dead letter after all that')
  }
  return { counts: ledger.verify({ duplicates: 0, order: order === 'key' }), noticedMs }
}

export const topology: readonly Check[] = [
  check({
    id: 'topology-deleted',
    title: 'Topic and group are deleted while they are used: all is made anew, and flows',
    area: 'connection',
    ref: 0,
    noLoss: true,
    timeoutMs: 120_000,
    needs: { hooks: ['deleteTopology'] },
    async run(ctx) {
      const remove: Delete = (topic, group) => ctx.hooks.deleteTopology(topic, group)
      const orders =
        ctx.capabilities.order === 'none' ? (['none'] as const) : (['none', 'key'] as const)
      const results = await Promise.all(orders.map((order) => deleted(ctx, order, remove)))
      same(results.length, orders.length, 'groups')
      ctx.count({ ...results[0]!.counts, allowed: 0 })
      ctx.count(figures({ noticedMs: Math.max(...results.map((one) => one.noticedMs)) }))
    },
  }),
]
