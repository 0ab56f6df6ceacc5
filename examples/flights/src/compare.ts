import type { Results } from './results.js'

/** One line for each way in which the job's results are not those of the direct computation; empty = equal. */
export function differences(actual: Results, expected: Results): string[] {
  return [
    ...compareMaps('airport', actual.airports, expected.airports),
    ...compareMaps('route', actual.routes, expected.routes),
    ...compareMaps('alerts of', actual.alerts, expected.alerts),
    ...compareMaps('dead letter of delays', actual.deadLetters.delays, expected.deadLetters.delays),
    ...compareMaps('dead letter of routes', actual.deadLetters.routes, expected.deadLetters.routes),
  ]
}

function* compareMaps<T>(
  what: string,
  actual: ReadonlyMap<string, T>,
  expected: ReadonlyMap<string, T>,
): Iterable<string> {
  for (const [name, value] of expected) {
    const found = actual.get(name)
    if (found === undefined) yield `${what} ${name} is missing: expected ${show(value)}`
    else yield* compareValues(`${what} ${name}`, found, value)
  }
  for (const [name, value] of actual) {
    if (!expected.has(name)) yield `${what} ${name} should not be there: ${show(value)}`
  }
}

function* compareValues<T>(what: string, actual: T, expected: T): Iterable<string> {
  if (typeof expected !== 'object' || expected === null) {
    if (actual !== expected) yield `${what}: ${show(actual)} instead of ${show(expected)}`
    return
  }
  for (const name of Object.keys(expected) as (keyof T & string)[]) {
    yield* compareValues(`${what}, ${name}`, actual[name], expected[name])
  }
}

const show = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value))
