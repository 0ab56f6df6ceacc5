import { type CheckContext, type Entry, type Ledger, same } from '@longshore/conformance'
import { type Bus, type Topic, topic } from '@longshore/core'
import type { Load } from './load.js'

export type Context = Omit<CheckContext, 'hooks'>

/** A topic of numbered messages, keyed by their key. */
export function numbered(name: string): Topic<Entry> {
  return topic<Entry>(name, { key: (entry) => entry.key })
}

export const nameOf = ({ producer, key, n }: Entry): string => `${producer}/${key}/${n}`

/** Waits until so many more messages were confirmed. */
export async function flows(
  ctx: Context,
  ledger: Ledger,
  more: number,
  deadline = 30_000,
): Promise<void> {
  const before = ledger.confirmed
  await ctx.until(
    () => ledger.confirmed >= before + more,
    () => `${more} more confirmed messages; ${ledger.confirmed - before} were`,
    deadline,
  )
}

/** Ends the load and waits until all that was confirmed has arrived, and the group has nothing left. */
export async function drain(
  ctx: Context,
  load: Load,
  ledger: Ledger,
  from: { readonly bus: Bus; readonly to: Topic<Entry>; readonly group: string },
  deadline = 30_000,
): Promise<void> {
  await ctx.within(load.stop(), 'the publishers to end', deadline)
  same(load.failed, [], 'publishes that ended neither confirmed nor unknown')
  await ctx.until(
    () => ledger.missing().length === 0,
    () => `all confirmed messages; ${JSON.stringify(ledger.counts())}`,
    deadline,
  )
  await emptied(ctx, from, deadline)
}

export async function emptied(
  ctx: Context,
  { bus, to, group }: { readonly bus: Bus; readonly to: Topic<Entry>; readonly group: string },
  deadline = 30_000,
): Promise<void> {
  if (!ctx.capabilities.admin) return
  let left = ''
  await ctx.until(
    async () => {
      const stats = await bus.admin.stats(to.name, group)
      left = JSON.stringify(stats)
      return stats.ready + (stats.inFlight ?? 0) === 0
    },
    () => `the group to be empty; it has ${left}`,
    deadline,
  )
}

/** When the connection of this bus was seen in each state, in milliseconds since `mark`. */
export class Watch {
  readonly #seen: { readonly state: string; readonly at: number }[] = []
  #mark = performance.now()

  constructor(ctx: Context, bus: Bus) {
    ctx.defer(
      bus.on('connection', ({ state }) => this.#seen.push({ state, at: performance.now() })),
    )
  }

  mark(): void {
    this.#mark = performance.now()
  }

  /** The first time since the mark. */
  first(state: 'up' | 'down' | 'blocked'): number | undefined {
    return this.#since(this.#seen.find((one) => one.state === state && one.at >= this.#mark))
  }

  last(state: 'up' | 'down' | 'blocked'): number | undefined {
    return this.#since(this.#seen.findLast((one) => one.state === state && one.at >= this.#mark))
  }

  #since(found: { readonly at: number } | undefined): number | undefined {
    return found === undefined ? undefined : Math.round(found.at - this.#mark)
  }
}

/** Only what is known, as a cell's figures. */
export function figures(values: Record<string, number | undefined>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(values).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  )
}
