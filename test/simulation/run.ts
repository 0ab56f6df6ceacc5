import { finish } from './finale.js'
import type { Flaw } from './flaws.js'
import type { Plan } from './plan.js'
import { Simulation } from './simulation.js'
import type { Violation } from './trace.js'

export interface Outcome {
  readonly seed: number
  readonly weather: Plan['weather']
  readonly violation: Violation | undefined
  readonly counts: Readonly<Record<string, number>>
  /** Empty unless traced. */
  readonly lines: readonly string[]
  readonly hash: string
}

/** Runs one seed from begin to end. */
export async function runSeed(
  seed: number,
  options: {
    readonly traced?: boolean
    readonly flaw?: Flaw
    /** Told each line of the trace as it comes, for runs that don't end. */
    readonly onLine?: (line: string) => void
  } = {},
): Promise<Outcome> {
  const sim = new Simulation(seed, options.traced ?? false, options.flaw, options.onLine)
  const { clock, trace, plan, ledger, chaos } = sim
  try {
    await sim.begin()
    const end = clock.now() + plan.endsAt
    clock.setTimer(() => {}, plan.endsAt)
    await clock.until(() => trace.violation !== undefined || clock.now() >= end, plan.endsAt)
    if (trace.violation === undefined) await finish(sim)
  } catch (error) {
    trace.fail('crash', error instanceof Error ? (error.stack ?? error.message) : String(error))
  }
  return {
    seed,
    weather: plan.weather,
    violation: trace.violation,
    counts: { ...ledger.counts, faults: chaos.count },
    lines: trace.lines,
    hash: trace.hash.toString(16).padStart(8, '0'),
  }
}
