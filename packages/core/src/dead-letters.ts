import type { DeadLetters as Api, DeadLetter, DeadLetterFilter } from './api.js'
import {
  type DeadLetterAccess,
  type DeadLetterSelection,
  deadLetterReasons,
  type StoredDeadLetter,
} from './dead-letter.js'
import { type LongshoreError, OptionError, toError, wrapDriverError } from './errors.js'
import { checkOptions, oneOf } from './options.js'

const filterOptions = ['id', 'ids', 'key', 'reason', 'where', 'limit', 'signal'] as const

/** The dead letters of one group, as users see them. */
export class DeadLetters implements Api {
  constructor(
    private readonly access: DeadLetterAccess,
    private readonly topic: string,
    private readonly group: string,
    private readonly assertOpen: () => void,
    private readonly onRedriven: (count: number) => void,
  ) {}

  async *list(filter: DeadLetterFilter = {}): AsyncIterable<DeadLetter> {
    const { ids, match, limit = Number.POSITIVE_INFINITY, signal } = this.#selection('list', filter)
    let found = 0
    if (limit === 0) return
    try {
      for await (const stored of this.access.browse(this.topic, this.group)) {
        if (signal?.aborted) return
        if (ids !== undefined && !ids.has(stored.message.id)) continue
        if (match !== undefined && !match(stored)) continue
        yield toLetter(stored)
        if (++found >= limit) return
      }
    } catch (error) {
      throw this.#wrap('listing', error)
    }
  }

  async get(id: string): Promise<DeadLetter | undefined> {
    for await (const letter of this.list({ id, limit: 1 })) return letter
    return undefined
  }

  async count(filter: DeadLetterFilter = {}): Promise<number> {
    let count = 0
    for await (const _ of this.list(filter)) count++
    return count
  }

  async redrive(filter: DeadLetterFilter = {}): Promise<number> {
    const selection = this.#selection('redrive', filter)
    const count = await this.#try('redriving', () =>
      this.access.redrive(this.topic, this.group, selection),
    )
    if (count > 0) this.onRedriven(count)
    return count
  }

  async discard(filter: DeadLetterFilter): Promise<number> {
    if (filter !== null && conditionsOf(filter ?? {}).length === 0) {
      throw new OptionError(
        'discard() without a filter would delete all dead letters; say discard({ where: () => true }) if you mean that',
      )
    }
    const selection = this.#selection('discard', filter)
    return this.#try('discarding', () => this.access.discard(this.topic, this.group, selection))
  }

  async #try<T>(doing: string, step: () => Promise<T>): Promise<T> {
    try {
      return await step()
    } catch (error) {
      throw this.#wrap(doing, error)
    }
  }

  #wrap(doing: string, error: unknown): LongshoreError {
    const where = `the dead letters of '${this.topic}' in group '${this.group}'`
    return wrapDriverError(error, `${doing} ${where}`)
  }

  #selection(call: string, filter: DeadLetterFilter): DeadLetterSelection {
    this.assertOpen()
    checkOptions(`deadLetters.${call}`, filter, filterOptions)
    for (const name of conditionsOf(filter)) {
      if (filter[name] !== undefined && filter[name] !== null) continue
      throw new OptionError(
        `deadLetters.${call}: ${name} is ${filter[name]}, which would mean any; leave it out if you mean that`,
      )
    }
    const { id, key, reason, where, limit, signal } = filter
    if (limit !== undefined && !(Number.isInteger(limit) && limit >= 0)) {
      throw new OptionError(`deadLetters.${call}: limit is ${limit}; it must be a whole number ≥ 0`)
    }
    if (reason !== undefined) oneOf('reason', reason, deadLetterReasons)
    if (where !== undefined && typeof where !== 'function') {
      throw new OptionError(
        `deadLetters.${call}: where is a function (letter) that returns a boolean`,
      )
    }
    if (typeof filter.ids === 'string') {
      throw new OptionError(`deadLetters.${call}: ids is a list; give one as id`)
    }
    let ids = filter.ids === undefined ? undefined : new Set(filter.ids)
    if (id !== undefined) ids = ids === undefined || ids.has(id) ? new Set([id]) : new Set()
    const conditions: ((letter: StoredDeadLetter) => boolean)[] = []
    if (key !== undefined) conditions.push((letter) => letter.message.key === key)
    if (reason !== undefined) conditions.push((letter) => letter.failure.reason === reason)
    if (where !== undefined) conditions.push((letter) => asked(where, toLetter(letter)))
    return {
      ...(ids === undefined ? {} : { ids }),
      ...(conditions.length === 0
        ? {}
        : { match: (letter) => conditions.every((each) => each(letter)) }),
      ...(limit === undefined ? {} : { limit }),
      ...(signal === undefined ? {} : { signal }),
    }
  }
}

function asked(where: (letter: DeadLetter) => boolean, letter: DeadLetter): boolean {
  try {
    return where(letter)
  } catch (thrown) {
    throw new OptionError(`the where of a dead-letter filter threw: ${toError(thrown).message}`, {
      cause: thrown,
    })
  }
}

/** The names of what the filter asks for; `signal` is none of it. */
function conditionsOf(filter: DeadLetterFilter) {
  return (Object.keys(filter) as (keyof DeadLetterFilter)[]).filter(
    (name): name is Exclude<keyof DeadLetterFilter, 'signal'> =>
      name !== 'signal' && name !== 'limit',
  )
}

function toLetter({ message, failure }: StoredDeadLetter): DeadLetter {
  const { id, key, body, headers, contentType, timestamp } = message
  return { id, key, body, headers, contentType, timestamp, failure }
}
