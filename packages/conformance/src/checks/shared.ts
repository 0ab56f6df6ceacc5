import {
  type Bus,
  binary,
  type RetryPolicy,
  type SubscribeOptions,
  type Topic,
  topic,
} from '@longshore/core'
import type { CheckContext } from '../context.js'
import { same } from '../expect.js'
import type { Entry } from '../ledger.js'

/** Short delays without chance, so that a check of retries is quick and its times are known. */
export const quickRetry: RetryPolicy = { attempts: 5, base: 20, factor: 1, jitter: 0 }

/** A topic of numbered messages, keyed by their key. */
export function numbered(name: string): Topic<Entry> {
  return topic<Entry>(name, { key: (entry) => entry.key })
}

/** A topic of plain bytes. */
export function bytes(name: string): Topic<Uint8Array> {
  return topic<Uint8Array>(name, { codec: binary() })
}

export function entries(count: number, key = 'k', producer = 'p'): Entry[] {
  return Array.from({ length: count }, (_, n) => ({ producer, key, n }))
}

/** Publishes all and returns the outcomes that are not confirmed. */
export async function publishAll(
  bus: Bus,
  to: Topic<Entry>,
  all: readonly Entry[],
): Promise<readonly string[]> {
  const failures: string[] = []
  for (let at = 0; at < all.length; at += 500) {
    const page = all.slice(at, at + 500).map((payload) => ({ payload }))
    for (const outcome of await bus.publishBatch(to, page)) {
      if (outcome.status !== 'confirmed')
        failures.push(`${outcome.status}: ${outcome.error.message}`)
    }
  }
  return failures
}

/** Publishes one message for each route, numbered by its place; undefined: without one. */
export async function publishRouted(
  bus: Bus,
  to: Topic<Entry>,
  routes: readonly (string | undefined)[],
): Promise<void> {
  const batch = routes.map((route, n) => {
    const payload = { producer: 'p', key: `k${n}`, n }
    return route === undefined ? { payload } : { payload, route }
  })
  const outcomes = await bus.publishBatch(to, batch)
  const failed = outcomes.filter((outcome) => outcome.status !== 'confirmed')
  same(failed, [], 'failed publishes')
}

/** Joins the group for a moment, so that it exists and gets what is published from now on. */
export async function createGroup(
  context: Pick<CheckContext, 'connect'>,
  to: Topic<Entry> | Topic<Uint8Array> | string,
  group: string,
  options: Pick<SubscribeOptions, 'order' | 'routes'> = {},
): Promise<void> {
  const bus = await context.connect()
  const subscription = await bus.subscribe<unknown, unknown>(
    to as Topic<unknown>,
    { group, ...options },
    () => {},
  )
  await subscription.close()
  await bus.close()
}

/** Reads all of an async iterable. */
export async function all<T>(source: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = []
  for await (const item of source) items.push(item)
  return items
}

/** Numbers of what was seen. */
export function numbersOf(seen: readonly { readonly payload: Entry }[]): number[] {
  return seen.map((one) => one.payload.n)
}

/** A moment in which what should not come would come. */
export async function settleDown(
  context: Pick<CheckContext, 'tolerances' | 'until'>,
): Promise<void> {
  const over = Date.now() + 100 * context.tolerances.slowness
  await context.until(() => Date.now() >= over, 'a moment to pass')
}
