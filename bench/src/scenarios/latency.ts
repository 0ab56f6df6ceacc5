import { Ledger, makerOf } from '../payloads.js'
import type { Target } from '../session.js'
import { nearestRank } from '../stats.js'
import { breathe, type Load, type Scenario } from './scenario.js'

const perSecond = 2000
const seconds = 1.5

/** Microseconds from publish to handler, at a fixed rate far below what the target can do. */
async function latency(target: Target, { patienceMs }: Load): Promise<readonly number[]> {
  const session = await target.open({ kind: 'json', concurrency: 64, order: 'none' })
  const { make, read } = makerOf('json')
  const total = perSecond * seconds
  const ledger = new Ledger(total)
  const published = new Float64Array(total)
  const took = new Float64Array(total)
  await session.consume(async (payload) => {
    const seq = read(payload)
    took[seq] = (performance.now() - published[seq]!) * 1000
    ledger.mark(seq)
  })
  const start = performance.now()
  const confirmations: Promise<unknown>[] = []
  for (let seq = 0; seq < total; seq++) {
    while (performance.now() < start + (seq * 1000) / perSecond) await breathe()
    published[seq] = performance.now()
    confirmations.push(session.publish(make(seq)))
  }
  await Promise.all(confirmations)
  await ledger.complete(patienceMs)
  await session.close()
  return [nearestRank(took, 0.5), nearestRank(took, 0.99)]
}

export const fixedRate: Scenario = {
  name: 'latency',
  metrics: [
    { name: `latency p50 at ${perSecond}/s`, unit: 'µs' },
    { name: `latency p99 at ${perSecond}/s`, unit: 'µs' },
  ],
  run: latency,
}
