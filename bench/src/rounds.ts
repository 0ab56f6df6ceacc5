/** Runs each scenario through both targets in turn, so that what the machine does meanwhile hits both. */
import { collectGarbage } from './gc.js'
import type { Scenario } from './scenarios/scenario.js'
import type { Target } from './session.js'
import { median } from './stats.js'

export interface Result {
  readonly name: string
  readonly unit: string
  /** Medians over the rounds. */
  readonly longshore: number
  readonly raw: number
  /** longshore / raw; null where raw is too near to 0 to divide by. */
  readonly ratio: number | null
  readonly rounds: { readonly longshore: readonly number[]; readonly raw: readonly number[] }
  /** What was the same for both. */
  readonly settings?: Scenario['settings']
}

export interface Plan {
  readonly longshore: Target
  readonly raw: Target
  readonly rounds: number
  readonly messages: number
  /** Count the CPU time of the process for throughput, all its threads together, instead of the time that passes. */
  readonly cpu?: boolean
  /** Default 60 s. */
  readonly patienceMs?: number
  /** Around each measurement of Longshore after the warm-up. */
  readonly profile?: (name: string, work: () => Promise<void>) => Promise<void>
  progress(text: string): void
}

function cpuTime(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

export async function measure(scenario: Scenario, plan: Plan): Promise<Result[]> {
  const values = { longshore: [] as (readonly number[])[], raw: [] as (readonly number[])[] }
  const load = {
    messages: plan.messages,
    patienceMs: plan.patienceMs ?? 60_000,
    now: plan.cpu ? cpuTime : () => performance.now(),
  }
  const run = async (which: 'longshore' | 'raw', keep: boolean) => {
    collectGarbage()
    const work = async () => {
      const measured = await scenario.run(plan[which], load)
      if (keep) values[which].push(measured)
    }
    if (keep && which === 'longshore' && plan.profile) await plan.profile(scenario.name, work)
    else await work()
  }
  plan.progress(`${scenario.name}: warming up`)
  await run('raw', false)
  await run('longshore', false)
  for (let round = 1; round <= plan.rounds; round++) {
    plan.progress(`${scenario.name}: round ${round} of ${plan.rounds}`)
    const order =
      round % 2 === 0 ? (['raw', 'longshore'] as const) : (['longshore', 'raw'] as const)
    for (const which of order) await run(which, true)
  }
  return scenario.metrics.map(({ name, unit }, index) => {
    const rounds = {
      longshore: values.longshore.map((measured) => measured[index] ?? Number.NaN),
      raw: values.raw.map((measured) => measured[index] ?? Number.NaN),
    }
    const [longshore, raw] = [median(rounds.longshore), median(rounds.raw)]
    const ratio = raw > 0.05 ? longshore / raw : null
    const { settings } = scenario
    return { name, unit, longshore, raw, ratio, rounds, ...(settings && { settings }) }
  })
}
