import { NameError, show } from './errors.js'

const pattern = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$/

/**
 * Names that every broker can hold: 1 to 100 of `A–Z a–z 0–9 . _ -`, a letter or digit at both ends, no `..`. Kafka has
 * the smallest set and ends at 249 characters: topic, group and what drivers add fit in that. `..` is how drivers join them.
 */
export function checkName(kind: 'topic' | 'group', name: unknown): asserts name is string {
  if (typeof name === 'string' && pattern.test(name) && !name.includes('..')) return
  throw new NameError(
    `${show(name)} is no valid ${kind} name; use 1 to 100 letters, digits, '.', '_' or '-', ` +
      `a letter or digit first and last, and no '..'`,
  )
}
