import type { Target } from '../session.js'

export interface Metric {
  readonly name: string
  readonly unit: string
}

export interface Load {
  /** How many, where a scenario leaves that open. */
  readonly messages: number
  /** How long to wait for the last ones. */
  readonly patienceMs: number
  /** Milliseconds that have passed, by the clock or in CPU time. */
  readonly now: () => number
}

export interface Scenario {
  readonly name: string
  /** What `run` measures, in this order. */
  readonly metrics: readonly Metric[]
  /** For the report: what is the same for both sides. */
  readonly settings?: Readonly<Record<string, number | string>>
  /** May measure more than `metrics` names. Rejects if a message was lost or left unsettled. */
  run(target: Target, load: Load): Promise<readonly number[]>
}

/** Lets timers and I/O run, and all that they make ready. */
export const breathe = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
