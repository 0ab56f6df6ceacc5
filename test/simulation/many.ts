import type { Flaw } from './flaws.js'
import { type Outcome, runSeed } from './run.js'

/** Simulations under way at once: each has its own clock and broker, and they share the turns of the event loop. */
const abreast = 32

export interface Summary {
  runs: number
  failed: Outcome | undefined
  readonly counts: Record<string, number>
  readonly weather: Record<string, number>
  ms: number
}

/** Runs seeds until `count` are done, the time is over, or one fails. Names the smallest failing seed among those begun. */
export async function runMany(options: {
  readonly from: number
  readonly count: number
  readonly seconds?: number
  readonly flaw?: Flaw
  readonly onProgress?: (runs: number) => void
}): Promise<Summary> {
  const { from, count, seconds = Number.POSITIVE_INFINITY, flaw, onProgress } = options
  const summary: Summary = { runs: 0, failed: undefined, counts: {}, weather: {}, ms: 0 }
  const begin = performance.now()
  let next = from
  const worker = async () => {
    while (next < from + count && summary.failed === undefined) {
      if (performance.now() - begin > seconds * 1000) return
      const outcome = await runSeed(next++, flaw === undefined ? {} : { flaw })
      summary.runs++
      summary.weather[outcome.weather] = (summary.weather[outcome.weather] ?? 0) + 1
      for (const [name, n] of Object.entries(outcome.counts)) {
        summary.counts[name] = (summary.counts[name] ?? 0) + n
      }
      if (outcome.violation && outcome.seed < (summary.failed?.seed ?? Number.POSITIVE_INFINITY)) {
        summary.failed = outcome
      }
      onProgress?.(summary.runs)
    }
  }
  const limit = Error.stackTraceLimit
  // Thousands of errors are thrown here on purpose.
  Error.stackTraceLimit = 0
  await Promise.all(Array.from({ length: abreast }, worker))
  Error.stackTraceLimit = limit
  summary.ms = performance.now() - begin
  return summary
}
