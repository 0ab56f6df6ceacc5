import type { Bus, SubscribeOptions } from '@longshore/core'
import type { Entry } from '../ledger.js'
import type { Handling, MemberSpec, Report } from './protocol.js'

export interface Surroundings {
  report(report: Report): void
  /** Ends the process as SIGKILL does, or what comes nearest. */
  die(): void
  /** Aborts when held handlers may go. */
  readonly released: AbortSignal
}

/** Does what the spec says on this connection. Resolves when it is ready; the work goes on behind. */
export async function behave(bus: Bus, spec: MemberSpec, around: Surroundings): Promise<void> {
  if (spec.role === 'consume') await consume(bus, spec, around)
  around.report({ type: 'ready' })
  if (spec.role === 'publish') detach(publish(bus, spec, around), around)
  if (spec.role === 'redrive') detach(redrive(bus, spec, around), around)
}

/** The system's monotonic clock, which tells what came first in different processes. */
export function sharedTime(): number {
  return Number(process.hrtime.bigint()) / 1e6
}

async function consume(bus: Bus, spec: MemberSpec, around: Surroundings): Promise<void> {
  const behaviour = spec.behaviour ?? 'ack'
  const options: SubscribeOptions = { group: spec.group, ...spec.options }
  await bus.subscribe<Entry, Entry>(spec.topic, options, async (payload, context) => {
    const { producer, key, n } = payload
    const { attempt, deliveries } = context
    const { id } = context.message
    const now = (): Handling => ({ producer, key, n, id, attempt, deliveries, at: sharedTime() })
    around.report({ type: 'started', handling: now() })
    if (behaviour === 'die') around.die()
    if (behaviour === 'die' || behaviour === 'hold') await aborted(around.released)
    if (typeof behaviour === 'object') await wait(behaviour.slow, around.released)
    around.report({ type: 'handled', handling: now() })
  })
}

async function publish(bus: Bus, spec: MemberSpec, around: Surroundings): Promise<void> {
  const { producer, key, count } = spec.publish ?? { producer: 'p', key: 'k', count: 0 }
  for (let n = 0; n < count && !around.released.aborted; n++) {
    const entry: Entry = { producer, key, n }
    await bus.publish<Entry, Entry>(spec.topic, entry)
    around.report({ type: 'confirmed', entry })
  }
}

async function redrive(bus: Bus, spec: MemberSpec, around: Surroundings): Promise<void> {
  const count = await bus.deadLetters(spec.topic, spec.group).redrive()
  around.report({ type: 'redriven', count })
}

function detach(work: Promise<void>, around: Surroundings): void {
  work.catch((error) => around.report({ type: 'error', message: String(error) }))
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve()
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
}

function wait(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve()
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', done, { once: true })
  })
}
