import type { ConsumeContext, ConsumeMiddleware } from '../api.js'
import { type Clock, systemClock } from '../clock.js'
import { type Duration, toMs } from '../duration.js'
import { OptionError } from '../errors.js'
import { newId } from '../message.js'
import { checkOptions } from '../options.js'
import { RetryLaterError } from '../retry-later.js'

/** Remembers which messages were handled. `token` names the claimant, so that only it can finish or give up. */
export interface DedupeStore {
  /** `claimed`: run it. `busy`: somebody else is at it. `done`: it was handled. A claim lapses after `ttlMs`. */
  claim(key: string, token: string, ttlMs: number): Promise<'claimed' | 'busy' | 'done'>
  /** Marks it handled for `ttlMs`. */
  done(key: string, token: string, ttlMs: number): Promise<void>
  /** Gives the claim up, so that it can be tried again. */
  release(key: string, token: string): Promise<void>
}

export interface DeduplicateOptions {
  readonly store: DedupeStore
  /** How long a handled message is remembered. Default 24 h. */
  readonly ttl?: Duration
  /** How long a claim holds; longer than the handler ever takes. Default 5 min. */
  readonly claim?: Duration
  /** Default: group and message id. */
  readonly key?: (context: ConsumeContext) => string
}

/**
 * Runs the inner part once per message, as far as the store remembers: repeats are acked without running. A message that
 * somebody else is at is retried later. It does not join the handler's transaction: a crash between handling and marking
 * runs the message again.
 * @throws OptionError, UnknownOptionError
 */
export function deduplicate(options: DeduplicateOptions): ConsumeMiddleware {
  checkOptions('deduplicate', options, ['store', 'ttl', 'claim', 'key'])
  const { store } = options
  if (typeof store?.claim !== 'function') {
    throw new OptionError('deduplicate needs a store, for instance new MemoryDedupeStore()')
  }
  const ttlMs = toMs(options.ttl ?? '24h', 'deduplicate.ttl')
  const claimMs = toMs(options.claim ?? '5m', 'deduplicate.claim')
  const keyOf = options.key ?? ((context) => `${context.group}:${context.message.id}`)
  return async function deduplicate(context, next) {
    const key = keyOf(context)
    const token = newId()
    const claim = await store.claim(key, token, claimMs)
    if (claim === 'done') return
    if (claim === 'busy') {
      const why = `message ${context.message.id} is being handled elsewhere`
      throw new RetryLaterError('1s', why, { counted: false })
    }
    try {
      await next(context)
    } catch (error) {
      // The handler's error is what matters; a claim that can't be given up lapses by itself.
      await store.release(key, token).catch(() => {})
      throw error
    }
    // Put off, dead-lettered (and maybe redriven one day) or handed back: it was not handled.
    if ((context.settledBy ?? 'ack') === 'ack') await store.done(key, token, ttlMs)
    else await store.release(key, token)
  }
}

interface Entry {
  token: string | undefined
  expiresAt: number
}

/**
 * A dedupe store in this process, for tests and single processes. Bounded: past `max` entries (default 100,000) the oldest
 * are forgotten.
 */
export class MemoryDedupeStore implements DedupeStore {
  readonly #entries = new Map<string, Entry>()
  readonly #max: number
  readonly #clock: Clock

  constructor(options: { readonly max?: number; readonly clock?: Clock } = {}) {
    this.#max = options.max ?? 100_000
    this.#clock = options.clock ?? systemClock
  }

  async claim(key: string, token: string, ttlMs: number): Promise<'claimed' | 'busy' | 'done'> {
    const entry = this.#entries.get(key)
    if (entry !== undefined && entry.expiresAt > this.#clock.now()) {
      return entry.token === undefined ? 'done' : 'busy'
    }
    this.#put(key, { token, expiresAt: this.#clock.now() + ttlMs })
    return 'claimed'
  }

  async done(key: string, token: string, ttlMs: number): Promise<void> {
    const entry = this.#entries.get(key)
    if (entry !== undefined && entry.token !== token) return
    this.#put(key, { token: undefined, expiresAt: this.#clock.now() + ttlMs })
  }

  async release(key: string, token: string): Promise<void> {
    if (this.#entries.get(key)?.token === token) this.#entries.delete(key)
  }

  #put(key: string, entry: Entry): void {
    this.#entries.delete(key)
    this.#entries.set(key, entry)
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#max) break
      this.#entries.delete(oldest)
    }
  }
}
