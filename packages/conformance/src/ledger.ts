import { fail } from './expect.js'

/** One numbered message: the payload that checks publish. Numbers rise per producer and key. */
export interface Entry {
  readonly producer: string
  readonly key: string
  readonly n: number
}

export interface LedgerCounts {
  readonly published: number
  readonly confirmed: number
  /** Different messages seen. */
  readonly seen: number
  /** Confirmed and never seen. */
  readonly lost: number
  /** Seen again, each time counted. */
  readonly duplicates: number
  /** Seen but never published. */
  readonly invented: number
  /** First seen after a later one of the same producer and key. */
  readonly orderBreaks: number
}

/** What was published, what of it was confirmed, and what each group saw: the oracle of all no-loss and order checks. */
export class Ledger {
  readonly #published = new Map<string, Entry>()
  readonly #confirmed = new Set<string>()
  readonly #seen = new Map<string, Map<string, number>>()
  readonly #highest = new Map<string, number>()
  readonly #breaks = new Map<string, string[]>()

  publish(entry: Entry): void {
    this.#published.set(nameOf(entry), entry)
  }

  confirm(entry: Entry): void {
    this.publish(entry)
    this.#confirmed.add(nameOf(entry))
  }

  /** A group saw this message. Repeats of one that was seen before don't count as order breaks. */
  see(entry: Entry, group = ''): void {
    const seen = this.#group(group)
    const name = nameOf(entry)
    const times = seen.get(name) ?? 0
    seen.set(name, times + 1)
    if (times > 0) return
    const line = `${group}|${entry.producer}|${entry.key}`
    const highest = this.#highest.get(line) ?? -1
    if (entry.n < highest) {
      const breaks = this.#breaks.get(group) ?? []
      breaks.push(`${name} after number ${highest}`)
      this.#breaks.set(group, breaks)
    } else {
      this.#highest.set(line, entry.n)
    }
  }

  get confirmed(): number {
    return this.#confirmed.size
  }

  hasSeen(entry: Entry, group = ''): boolean {
    return this.#seen.get(group)?.has(nameOf(entry)) ?? false
  }

  /** Confirmed messages that the group has not seen yet. */
  missing(group = ''): string[] {
    const seen = this.#seen.get(group)
    return [...this.#confirmed].filter((name) => !seen?.has(name))
  }

  counts(group = ''): LedgerCounts {
    const seen = this.#seen.get(group) ?? new Map<string, number>()
    let duplicates = 0
    for (const times of seen.values()) duplicates += times - 1
    return {
      published: this.#published.size,
      confirmed: this.#confirmed.size,
      seen: seen.size,
      lost: this.missing(group).length,
      duplicates,
      invented: [...seen.keys()].filter((name) => !this.#published.has(name)).length,
      orderBreaks: this.#breaks.get(group)?.length ?? 0,
    }
  }

  /** Fails unless every confirmed message was seen, nothing was invented, and no bound is passed. */
  verify(
    bounds: { duplicates?: number; order?: boolean } = {},
    group = '',
    what = 'the ledger',
  ): LedgerCounts {
    const counts = this.counts(group)
    const wrong: string[] = []
    if (counts.lost > 0) wrong.push(`lost ${sample(this.missing(group))}`)
    if (counts.invented > 0) wrong.push(`${counts.invented} seen that nobody published`)
    if (counts.duplicates > (bounds.duplicates ?? Infinity)) {
      wrong.push(`${counts.duplicates} duplicates, at most ${bounds.duplicates} allowed`)
    }
    if (bounds.order && counts.orderBreaks > 0) {
      wrong.push(`order broken: ${sample(this.#breaks.get(group) ?? [])}`)
    }
    if (wrong.length > 0) fail(`${what}: ${wrong.join('; ')} (${show(counts)})`)
    return counts
  }

  #group(group: string): Map<string, number> {
    let seen = this.#seen.get(group)
    if (seen === undefined) {
      seen = new Map()
      this.#seen.set(group, seen)
    }
    return seen
  }
}

function nameOf(entry: Entry): string {
  return `${entry.producer}/${entry.key}/${entry.n}`
}

function sample(names: readonly string[]): string {
  const few = names.slice(0, 5).join(', ')
  return names.length > 5 ? `${names.length}: ${few}, …` : `${names.length}: ${few}`
}

function show(counts: LedgerCounts): string {
  return Object.entries(counts)
    .map(([name, count]) => `${name} ${count}`)
    .join(', ')
}
