import { OptionError, show, UnknownOptionError } from './errors.js'

/**
 * Refuses names that are not options, with the nearest one as a hint.
 * @throws UnknownOptionError; OptionError if it is no object
 */
export function checkOptions(where: string, given: object, known: readonly string[]): void {
  if (given === null || typeof given !== 'object') {
    throw new OptionError(`${where}: options must be an object with some of: ${known.join(', ')}`)
  }
  for (const name of Object.keys(given)) {
    if (known.includes(name)) continue
    const near = nearest(name, known)
    const hint = near === undefined ? `known are: ${known.join(', ')}` : `did you mean '${near}'?`
    throw new UnknownOptionError(`${where}: there is no option '${name}'; ${hint}`)
  }
}

/** Whether all names are options, without building a message about it: for hot paths. */
export function areKnown(given: object, known: readonly string[]): boolean {
  if (given === null || typeof given !== 'object') return false
  for (const name in given) if (!known.includes(name)) return false
  return true
}

/** The known name with the smallest edit distance, if it is small enough to be a slip. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  let best: string | undefined
  let bestDistance = Math.max(2, Math.floor(name.length / 3)) + 1
  for (const candidate of known) {
    const d = distance(name.toLowerCase(), candidate.toLowerCase())
    if (d < bestDistance) [best, bestDistance] = [candidate, d]
  }
  return best
}

function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const substitution = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, substitution))
    }
    row = next
  }
  return row[b.length]!
}

/** @throws OptionError if it isn't an array of functions */
export function checkMiddleware(option: string, middleware: unknown): void {
  if (Array.isArray(middleware) && middleware.every((each) => typeof each === 'function')) return
  throw new OptionError(
    `${option} is an array of functions (context, next), not ${typeof middleware}`,
  )
}

/** @throws OptionError */
export function oneOf(option: string, value: string, allowed: readonly string[]): void {
  if (allowed.includes(value)) return
  throw new OptionError(
    `${option} is ${show(value)}; it is one of ${allowed.map((each) => `'${each}'`).join(', ')}`,
  )
}

/** @throws OptionError */
export function yesOrNo(option: string, value: unknown): void {
  if (typeof value === 'boolean') return
  throw new OptionError(`${option} is ${show(value)}; it is true or false`)
}
