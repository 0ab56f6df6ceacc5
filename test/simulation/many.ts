import type { Flaw } from './flaws.js'
import { type Outcome, runSeed } from './run.js'

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
  const limit = Error.stackTraceLimit
  // Thousands of errors are thrown here on purpose.
  Error.stackTraceLimit = 0
  for (let seed = from; seed < from + count; seed++) {
    if (!all && summary.failed.length > 0) break
    if (performance.now() - begin > seconds * 1000) break
    const outcome = await runSeed(seed, flaw === undefined ? {} : { flaw })
    summary.runs++
    summary.weather[outcome.weather] = (summary.weather[outcome.weather] ?? 0) + 1
    for (const [name, n] of Object.entries(outcome.counts)) {
      summary.counts[name] = (summary.counts[name] ?? 0) + n
    }
    if (outcome.violation) summary.failed.push(outcome)
    onProgress?.(summary.runs)
  }
  Error.stackTraceLimit = limit
  summary.ms = performance.now() - begin
  return summary
}
