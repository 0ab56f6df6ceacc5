import { type BrokerInfo, BrokersError, up } from '../../scripts/brokers/index.mjs'

const REQUIRED = Boolean(process.env.CI || process.env.LONGSHORE_REQUIRE_BROKERS)

/**
 * The broker, or undefined, with the reason printed, where it can't be had. In CI that is an error.
 */
export async function broker(name: string): Promise<BrokerInfo | undefined> {
  try {
    const [info] = await up([name])
    return info
  } catch (error) {
    if (REQUIRED || !(error instanceof BrokersError)) throw error
    console.warn(`skipped: ${error.message}`)
    return undefined
  }
}

/** Waits until the condition holds; its last error or value is in the message if it never does. */
export async function eventually<T>(
  condition: () => Promise<T | undefined | false> | T | undefined | false,
  { within = 20_000 }: { within?: number } = {},
): Promise<T> {
  let last: unknown
  for (const deadline = Date.now() + within; Date.now() < deadline; ) {
    try {
      const value = await condition()
      if (value) return value
      last = value
    } catch (error) {
      last = error
    }
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  throw new Error(`not so within ${within} ms: ${String(last)}`)
}

/** A promise that is settled from outside, with a deadline. */
export function signal<T>(what: string, within = 20_000) {
  const { promise, resolve, reject } = withResolvers<T>()
  const timer = setTimeout(() => reject(new Error(`no ${what} within ${within} ms`)), within)
  promise.catch(() => {}).finally(() => clearTimeout(timer))
  return { promise, resolve, reject }
}

function withResolvers<T>() {
  let resolve!: (value: T) => void
  let reject!: (reason: unknown) => void
  const promise = new Promise<T>((yes, no) => {
    resolve = yes
    reject = no
  })
  return { promise, resolve, reject }
}
