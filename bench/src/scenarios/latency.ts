import { Ledger, makerOf } from '../payloads.js'
import { type Kind, type Settings, type Target, withSession } from '../session.js'
import { nearestRank } from '../stats.js'
import { breathe, type Load, type Scenario } from './scenario.js'

export interface Pace {
  readonly perSecond: number
  readonly seconds: number
  /** Between two looks at the clock. */
  readonly wait: () => Promise<unknown>
  readonly bytes?: number
}

/** Milliseconds from publish to handler, p50 and p99, at a fixed rate far below what the target can do. */
export async function latency<K extends Kind>(
  target: Target,
  settings: Settings<K>,
  { perSecond, seconds, wait, bytes }: Pace,
  { patienceMs }: Load,
): Promise<readonly [p50: number, p99: number]> {
  const { make, read } = makerOf(settings.kind, bytes)
  const total = perSecond * seconds
  const ledger = new Ledger(total)
  const published = new Float64Array(total)
  const took = new Float64Array(total)
  return withSession(target, settings, async (session) => {
    await session.consume(async (payload) => {
      const seq = read(payload)
      took[seq] = performance.now() - published[seq]!
      ledger.mark(seq)
    })
    const start = performance.now()
    const confirmations: Promise<unknown>[] = []
    for (let seq = 0; seq < total; seq++) {
      while (performance.now() < start + (seq * 1000) / perSecond) await wait()
      published[seq] = performance.now()
      confirmations.push(session.publish(make(seq)))
    }
    await Promise.all(confirmations)
    await ledger.complete(patienceMs)
    return [nearestRank(took, 0.5), nearestRank(took, 0.99)]
  })
}

const perSecond = 2000
const settings: Settings<'json'> = { kind: 'json', concurrency: 64, order: 'none' }
const pace: Pace = { perSecond, seconds: 1.5, wait: breathe }

export const fixedRate: Scenario = {
  name: 'latency',
  metrics: [
    { name: `latency p50 at ${perSecond}/s`, unit: 'µs' },
    { name: `latency p99 at ${perSecond}/s`, unit: 'µs' },
  ],
  run: async (target, load) =>
    (await latency(target, settings, pace, load)).map((milliseconds) => milliseconds * 1000),
}
