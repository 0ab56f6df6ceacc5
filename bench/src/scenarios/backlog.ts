import { setTimeout as sleep } from 'node:timers/promises'
import { heapAfterGc } from '../gc.js'
import { Ledger, makerOf } from '../payloads.js'
import { type Settings, type Target, withSession } from '../session.js'
import { breathe, type Load, type Scenario } from './scenario.js'

const backlog = 10_000
const megabyte = 1024 * 1024
const samples = 12

/**
 * A consumer of 1 ms for each message stays behind a backlog that is kept full. Measures what the backlog takes, and
 * by how much the heap outgrows that while messages flow: flat, if the consumer pulls no more than it works on.
 * `turnovers`: how often the whole backlog is handled and published anew while the heap is watched.
 */
export async function heapBehindBacklog(
  target: Target,
  settings: Settings<'text'>,
  { patienceMs }: Load,
  turnovers: number,
): Promise<readonly [backlog: number, growth: number]> {
  const { make, read } = makerOf('text')
  const total = backlog * (turnovers + 1)
  const ledger = new Ledger(total)
  return withSession(target, settings, async (session) => {
    await session.consume(async (payload) => {
      await sleep(1)
      ledger.mark(read(payload))
    })
    await session.pause()
    await breathe()

    const empty = heapAfterGc()
    let seq = 0
    const fill = async () => {
      const length = Math.min(total, backlog + ledger.handled) - seq
      if (length <= 0) return
      await session.publishBatch(Array.from({ length }, (_, i) => ({ payload: make(seq + i) })))
      seq += length
    }
    await fill()
    const full = heapAfterGc()
    await session.resume()
    let peak = full
    for (let sample = 1; sample <= samples; sample++) {
      const until = (total - backlog) * (sample / samples)
      while (ledger.handled < until) {
        await fill()
        await sleep(1)
      }
      peak = Math.max(peak, heapAfterGc())
    }
    await fill()
    await ledger.complete(patienceMs)
    return [(full - empty) / megabyte, (peak - full) / megabyte]
  })
}

const settings: Settings<'text'> = { kind: 'text', concurrency: 16, order: 'none' }

export const slowConsumer: Scenario = {
  name: 'slow consumer',
  metrics: [
    { name: `heap of a backlog of 10,000 × 256 B`, unit: 'MB' },
    { name: `heap growth, slow consumer behind it`, unit: 'MB' },
  ],
  run: (target, load) => heapBehindBacklog(target, settings, load, 3),
}
