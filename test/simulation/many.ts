import type { Flaw } from './flaws.js'
import { type Outcome, runSeed } from './run.js'

/** Simulations under way at once: each has its own clock and broker, and they share the turns of the event loop. */
const abreast = 32

export interface Summary {
  runs: number
  /** In the order of their seeds. */
  readonly failed: Outcome[]
  readonly counts: Record<string, number>
  readonly weather: Record<string, number>
  ms: number
}

/** Runs seeds until `count` are done, the time is over, or one fails. */
export async function runMany(options: {
  readonly from: number
  readonly count: number
  readonly seconds?: number
  readonly flaw?: Flaw
  /** Goes on after a failure. */
  readonly all?: boolean
  readonly onProgress?: (runs: number) => void
}): Promise<Summary> {
  const { from, count, seconds = Number.POSITIVE_INFINITY, flaw, all, onProgress } = options
  const summary: Summary = { runs: 0, failed: [], counts: {}, weather: {}, ms: 0 }
  const begin = performance.now()
  let next = from
  const worker = async () => {
    while (next < from + count && (all || summary.failed.length === 0)) {
      if (performance.now() - begin > seconds * 1000) return
      const outcome = await runSeed(next++, flaw === undefined ? {} : { flaw })
      summary.runs++
      summary.weather[outcome.weather] = (summary.weather[outcome.weather] ?? 0) + 1
      for (const [name, n] of Object.entries(outcome.counts)) {
        summary.counts[name] = (summary.counts[name] ?? 0) + n
      }
      if (outcome.violation) summary.failed.push(outcome)
      onProgress?.(summary.runs)
    }
  }
  const limit = Error.stackTraceLimit
  // Thousands of errors are thrown here on purpose.
  Error.stackTraceLimit = 0
  await Promise.all(Array.from({ length: abreast }, worker))
  Error.stackTraceLimit = limit
  summary.failed.sort((a, b) => a.seed - b.seed)
  summary.ms = performance.now() - begin
  return summary
}
