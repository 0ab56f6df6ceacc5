/** The job: publish the flights, wait until all is handled or dead, repair the cause, redrive, wait for the rest. */
import { setImmediate as breathe, setTimeout as sleep } from 'node:timers/promises'
import type { Bus } from '@longshore/core'
import { Consumers } from './consumers.js'
import type { Damaged } from './events.js'
import { Meter } from './meter.js'
import { type Flight, names, type Topics, topics } from './topics.js'

export interface Work {
  readonly flights: readonly Flight[]
  readonly damaged: readonly Damaged[]
  /** How many alerts are to come of the flights. */
  readonly alertCount: number
}

/** How far the job is. */
export interface Counts {
  readonly published: number
  readonly delays: number
  readonly routes: number
  readonly alerts: number
  readonly retried: number
  readonly deadLettered: number
}

export interface JobOptions {
  /** Tells this run's topics and groups from those of others. */
  readonly run: string
  readonly signal: AbortSignal
  readonly deadlineMs: number
  /** Gives up early when nothing at all has happened for so long. */
  readonly stallMs: number
  /** Gets a function that tells how far the job is. */
  readonly watch?: (counts: () => Counts) => void
}

export interface JobOutcome {
  readonly consumers: Consumers
  /** From the first publish until all was handled. */
  readonly seconds: number
  /** What had not come when the deadline passed or the signal aborted. Empty = the job is complete. */
  readonly missing: readonly string[]
}

const batchSize = 200

export async function runJob(bus: Bus, work: Work, options: JobOptions): Promise<JobOutcome> {
  const name = names(options.run)
  const topic = topics(name)
  const meter = new Meter(bus, [name.delays, name.routes, name.desk])
  const consumers = new Consumers(bus, topic, name, meter)
  const failed = new AbortController()
  for (const { done } of await consumers.start()) {
    // A subscription that ends for good ends the job, instead of leaving it waiting for the deadline.
    done.catch((error: unknown) => failed.abort(error))
  }

  let published = 0
  const [delays, routes, desk] = [name.delays, name.routes, name.desk].map((one) => meter.of(one))
  if (!delays || !routes || !desk) throw new Error('a group has no meter')
  const counts = () => ({
    published,
    delays: consumers.delays.size,
    routes: consumers.routes.size,
    alerts: consumers.alerts.size,
    retried: delays.retried + routes.retried,
    deadLettered: delays.deadLettered + routes.deadLettered,
  })
  options.watch?.(counts)

  const { flights, damaged, alertCount } = work
  const deadline = AbortSignal.timeout(options.deadlineMs)
  const stalled = new AbortController()
  const signal = AbortSignal.any([options.signal, failed.signal, stalled.signal, deadline])
  const until = async (done: () => boolean) => {
    let [last, since] = ['', performance.now()]
    while (!done()) {
      await sleep(10, undefined, { signal })
      const now = JSON.stringify(counts())
      if (now !== last) [last, since] = [now, performance.now()]
      else if (performance.now() - since > options.stallMs) stalled.abort()
    }
  }

  const start = performance.now()
  const missing: string[] = []
  try {
    await publishAll(bus, topic, work, meter, signal, (count) => {
      published += count
    })
    await until(() => consumers.routes.size + routes.exhausted.size >= flights.length)
    consumers.repaired = true
    await bus.deadLetters(name.flights, name.routes).redrive({ reason: 'exhausted', signal })
    await until(
      () =>
        consumers.delays.size === flights.length &&
        consumers.routes.size === flights.length &&
        consumers.alerts.size === alertCount &&
        delays.invalid.size === damaged.length &&
        routes.invalid.size === damaged.length &&
        // The last acks come after the last handlers.
        delays.handled >= flights.length &&
        routes.handled >= flights.length &&
        desk.handled >= alertCount,
    )
  } catch (error) {
    if (failed.signal.aborted) throw failed.signal.reason
    if (!signal.aborted) throw error
    const parts = [
      ['published', published, flights.length],
      ['handled by delays', consumers.delays.size, flights.length],
      ['handled by routes', consumers.routes.size, flights.length],
      ['alerts handled', consumers.alerts.size, alertCount],
      ['dead letters of delays', delays.invalid.size, damaged.length],
      ['dead letters of routes', routes.invalid.size, damaged.length],
    ] as const
    for (const [what, is, all] of parts) if (is !== all) missing.push(`${what}: ${is} of ${all}`)
    if (missing.length === 0) missing.push('acks of the last messages')
  }
  const seconds = (performance.now() - start) / 1000

  if (missing.length === 0) {
    for (const group of ['delays', 'routes'] as const) {
      for await (const letter of bus.deadLetters(name.flights, name[group]).list()) {
        consumers.results.deadLetters[group].set(letter.id, letter.failure.reason)
      }
    }
  }
  return { consumers, seconds, missing }
}

async function publishAll(
  bus: Bus,
  topic: Topics,
  { flights, damaged }: Work,
  meter: Meter,
  signal: AbortSignal,
  confirmed: (count: number) => void,
): Promise<void> {
  const damagedAt = new Map(damaged.map((one) => [one.seq, one]))
  for (let at = 0; at < flights.length; at += batchSize) {
    signal.throwIfAborted()
    const batch = flights.slice(at, at + batchSize)
    const entries = batch.map((payload) => ({ payload, id: `flight-${payload.seq}` }))
    for (const { id } of entries) meter.publishing(id)
    for (const outcome of await bus.publishBatch(topic.flights, entries)) {
      if (outcome.status !== 'confirmed') throw outcome.error
    }
    for (const { seq } of batch) {
      const bad = damagedAt.get(seq)
      if (bad) await bus.publish(topic.damaged, bad.body, { id: bad.id, key: bad.key })
    }
    confirmed(batch.length)
    // In memory nothing waits for I/O: without this, timers (retries, progress) and signals would wait for the end.
    await breathe()
  }
}

/** Removes what a run made, from a broker that outlives it. */
export async function tidy({ bus, topics, names }: Consumers): Promise<void> {
  if (!bus.capabilities.admin) return
  await bus.admin.deleteGroup(names.flights, names.delays)
  await bus.admin.deleteGroup(names.flights, names.routes)
  await bus.admin.deleteGroup(names.alerts, names.desk)
  await bus.admin.deleteTopic(topics.flights.name)
  await bus.admin.deleteTopic(topics.alerts.name)
}
