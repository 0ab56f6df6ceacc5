import { type Check, check, type Entry, Ledger, same } from '@longshore/conformance'
import type { Bus, Topic } from '@longshore/core'
import { bytesHeld } from '../heap.js'
import { codeOf, Load } from '../load.js'
import { drain, figures, flows, numbered, Watch } from '../shared.js'
import type { FaultTarget } from '../target.js'

/** Messages that each outgoing buffer holds. */
const max = 50
const publishers = 2 * max
const rush = 5000
const bodyBytes = 16 * 1024

/** Many large messages at once, for a buffer that takes the first ones and refuses the others. */
function publishRush(bus: Bus, to: Topic<Entry>, ledger: Ledger) {
  const before = bytesHeld()
  const refused: string[] = []
  const filler = 'x'.repeat(bodyBytes)
  const all = Array.from({ length: rush }, async (_, n) => {
    const entry = { producer: 'rush', key: 'rush', n }
    ledger.publish(entry)
    try {
      await bus.publish(to, { ...entry, filler } as Entry)
      ledger.confirm(entry)
    } catch (error) {
      refused.push(codeOf(error))
    }
  })
  return { settled: Promise.all(all), refused, grown: () => bytesHeld() - before }
}

export const memoryAlarm = (target: FaultTarget): readonly Check[] => [
  check({
    id: 'broker-out-of-memory',
    title: 'The broker has no memory left: publishers are held back, nothing is dropped silently',
    area: 'publish',
    ref: 0,
    noLoss: true,
    timeoutMs: 120_000,
    async run(ctx) {
      if (!target.exhaustMemory) return ctx.skip("the target has no hook 'exhaustMemory'")
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const ledger = new Ledger()
      const consumer = await ctx.connect()
      await ctx.collect(consumer, to, { group, concurrency: 20 }, (entry) => ledger.see(entry))
      const open = (policy: 'block' | 'drop-newest') =>
        ctx.connect({ publish: { deadline: '2m', buffer: { max, policy } } })
      const patient = await open('block')
      const hasty = await open('drop-newest')
      await hasty.publish(to, { producer: 'warm-up', key: 'k', n: 0 })
      ledger.publish({ producer: 'warm-up', key: 'k', n: 0 })
      const load = new Load(ledger, (entry) => patient.publish(to, entry), { lanes: publishers })
      await flows(ctx, ledger, 300)

      const watch = new Watch(ctx, patient)
      const repair = await target.exhaustMemory()
      ctx.defer(repair)
      await ctx.until(
        () => patient.health().connection.state === 'blocked',
        () => `the alarm to be noticed; health is ${JSON.stringify(patient.health())}`,
      )
      same(patient.health().status, 'degraded', 'health().status')
      await ctx.until(
        () => load.underway === publishers && patient.health().outgoing.saturated,
        () =>
          `${load.underway} of ${publishers} wait, ${JSON.stringify(patient.health().outgoing)}`,
      )
      same(patient.health().outgoing.messages, max, 'messages in the buffer that blocks')
      same(patient.health().outgoing.blocked, publishers - max, 'publishers that wait for room')

      const { confirmed } = ledger
      const { settled, refused, grown } = publishRush(hasty, to, ledger)
      await ctx.until(
        () => refused.length >= rush - max,
        () => `${rush - max} refusals of the full buffer; ${refused.length} came`,
      )
      // The garbage of what was refused takes a moment to go.
      let grownBytes = 0
      await ctx.until(
        () => {
          grownBytes = grown()
          return grownBytes < 8 * 1024 * 1024
        },
        () => `the heap to be small; it grew by ${grownBytes} bytes`,
      )
      same([...new Set(refused)], ['LONGSHORE_SATURATED'], 'what they were told')
      same(ledger.confirmed, confirmed, 'messages confirmed while the broker took none')

      await repair()
      await ctx.until(
        () => [patient, hasty].every((bus) => bus.health().connection.state === 'up'),
        'both connections to be up again',
      )
      await ctx.within(settled, 'what the full buffer had taken to be confirmed', 20_000)
      same(refused.length, rush - max, 'publishes that were refused in the end')
      await flows(ctx, ledger, 300)
      await drain(ctx, load, ledger, { bus: consumer, to, group })
      same(load.unknown, 0, 'publishes whose outcome stayed unknown')
      ctx.count(ledger.verify({ duplicates: 0 }))
      ctx.count(figures({ allowed: 0, noticedMs: watch.first('blocked'), grownBytes }))
    },
  }),
]
