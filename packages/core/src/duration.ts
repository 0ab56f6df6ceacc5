import { OptionError, show } from './errors.js'

/** Milliseconds, or a number with a unit: `'250ms'`, `'30s'`, `'5m'`, `'2h'`, `'7d'`. */
export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`

const units: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
}

/**
 * Milliseconds of a duration.
 * @throws OptionError if it is negative, not finite or has no known unit
 */
export function toMs(value: Duration, option = 'duration'): number {
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value
  if (typeof value === 'string') {
    const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(value.trim())
    if (match) return Number(match[1]) * units[match[2]!]!
  }
  throw new OptionError(
    `${option} is ${show(value)}; give milliseconds (a number ≥ 0) or a string such as '250ms', '30s', '5m', '2h', '7d'`,
  )
}
