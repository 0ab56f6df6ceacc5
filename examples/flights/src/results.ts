import type { DeadLetterReason } from '@longshore/core'

/** `chain` folds in the number of each flight in turn: a flight lost, repeated or out of order changes it. */
export interface AirportStats {
  count: number
  totalDelay: number
  maxDelay: number
  chain: number
}

export interface RouteStats {
  count: number
  totalDelay: number
  distance: number
}

export interface AlertStats {
  count: number
  worst: number
}

/** All that the job computes. */
export interface Results {
  readonly airports: ReadonlyMap<string, AirportStats>
  readonly routes: ReadonlyMap<string, RouteStats>
  readonly alerts: ReadonlyMap<string, AlertStats>
  /** Ids and reasons of what is left in the dead letters of each group of the flights. */
  readonly deadLetters: {
    readonly delays: ReadonlyMap<string, DeadLetterReason>
    readonly routes: ReadonlyMap<string, DeadLetterReason>
  }
}

export function link(chain: number, seq: number): number {
  return Math.imul(chain ^ (seq + 1), 0x01000193) >>> 0
}

/** From how many minutes on a late flight is worth an alert. */
export const alertAbove = 60
