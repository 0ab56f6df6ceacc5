import { inspect, isDeepStrictEqual } from 'node:util'

/** A check found that the driver does not do what it must. */
export class ConformanceFailure extends Error {
  override readonly name = 'ConformanceFailure'
}

/** Thrown by a check that finds out only while running that it can't tell. */
export class CheckSkipped extends Error {
  override readonly name = 'CheckSkipped'
}

export function fail(message: string): never {
  throw new ConformanceFailure(message)
}

/** @param message says what was expected and what was seen */
export function ensure(condition: boolean, message: string | (() => string)): asserts condition {
  if (!condition) fail(typeof message === 'string' ? message : message())
}

export function same(seen: unknown, expected: unknown, what: string): void {
  if (isDeepStrictEqual(seen, expected)) return
  fail(`${what}: expected ${show(expected)}, saw ${show(seen)}`)
}

/** Bytes, with the place of the first difference. */
export function sameBytes(seen: Uint8Array, expected: Uint8Array, what: string): void {
  if (seen.length !== expected.length) {
    fail(`${what}: expected ${expected.length} bytes, saw ${seen.length}`)
  }
  const at = Buffer.compare(seen, expected) === 0 ? -1 : seen.findIndex((b, i) => b !== expected[i])
  if (at >= 0) fail(`${what}: byte ${at} should be ${expected[at]}, is ${seen[at]}`)
}

function show(value: unknown): string {
  const text = inspect(value, { depth: 4, breakLength: Infinity, maxArrayLength: 20 })
  return text.length > 400 ? `${text.slice(0, 400)}…` : text
}

/** The stable code of an error, or what it is instead. */
export function codeOf(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'code' in error) return String(error.code)
  return error instanceof Error ? `${error.name}: ${error.message}` : show(error)
}

/**
 * Awaits a rejection with one of these codes (not classes: there may be two copies of a package) and returns the error.
 */
export async function rejects(
  action: Promise<unknown> | (() => unknown),
  codes: string | readonly string[],
  what: string,
): Promise<Error & Record<string, unknown>> {
  const allowed = typeof codes === 'string' ? [codes] : codes
  let result: unknown
  try {
    result = await (typeof action === 'function' ? action() : action)
  } catch (error) {
    if (!allowed.includes(codeOf(error))) {
      fail(`${what}: expected an error with code ${allowed.join(' or ')}, saw ${describe(error)}`)
    }
    return error as Error & Record<string, unknown>
  }
  return fail(`${what}: expected an error with code ${allowed.join(' or ')}, saw ${show(result)}`)
}

function describe(error: unknown): string {
  return error instanceof Error ? `${codeOf(error)} (${error.message})` : show(error)
}
