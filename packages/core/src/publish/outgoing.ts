import { onAbort } from '../abort.js'
import type { BufferOptions, Published, PublishOutcome } from '../api.js'
import { type Clock, random, type Timer } from '../clock.js'
import { Deque } from '../deque.js'
import type { Driver, PublishFailure } from '../driver.js'
import { ClosedError, type LongshoreError, OptionError } from '../errors.js'
import type { EventSources } from '../events.js'
import type { WireMessage } from '../message.js'
import { Entry, type SendOptions, type Settle } from './entry.js'
import { aborted, dropped, expired, rejected } from './outcomes.js'

/** Messages at the driver, unconfirmed, at most. */
const windowSize = 4096
/** Messages in one call of the driver. */
const batchSize = 512
/** Backoff between repeats after a failed connection, in milliseconds. */
const firstPause = 20
const longestPause = 1000

/** For microtasks: cheaper than queueMicrotask, which makes an async resource for each. */
const ready = Promise.resolve()

/**
 * The outgoing buffer: bounded, in order, and the one place where a publish is repeated. Whatever fails is put back in its
 * old place and the flow stops for a moment, so that what follows doesn't overtake it.
 */
export class Outgoing {
  readonly #waiting = new Deque<Entry>()
  readonly #blocked = new Deque<Entry>()
  readonly #underway: Entry[] = []
  readonly #returned: Entry[] = []
  readonly #max: number
  readonly #maxBytes: number
  readonly #policy: 'block' | 'drop-oldest' | 'drop-newest'
  #seq = 0
  #size = 0
  #bytes = 0
  #scheduled = false
  #failures = 0
  #pause: Timer | undefined
  #sweep: Timer | undefined
  #sweepAt = Number.POSITIVE_INFINITY
  #closed = false
  #idle: (() => void)[] = []

  constructor(
    private readonly driver: Driver,
    private readonly clock: Clock,
    private readonly events: EventSources,
    options: BufferOptions = {},
  ) {
    this.#max = options.max ?? 10_000
    this.#maxBytes = options.maxBytes ?? 64 * 1024 * 1024
    this.#policy = options.policy ?? 'block'
    if (!['block', 'drop-oldest', 'drop-newest'].includes(this.#policy)) {
      throw new OptionError(
        `publish.buffer.policy is '${this.#policy}'; it is 'block', 'drop-oldest' or 'drop-newest'`,
      )
    }
    for (const [name, value] of [
      ['max', this.#max] as const,
      ['maxBytes', this.#maxBytes] as const,
    ]) {
      if (!Number.isInteger(value) || value < 1) {
        throw new OptionError(`publish.buffer.${name} must be a whole number ≥ 1, not ${value}`)
      }
    }
  }

  get messages(): number {
    return this.#size
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Publishers that wait for room (policy `block`); their messages are not in the buffer yet. */
  get blocked(): number {
    return this.#blocked.size
  }

  get saturated(): boolean {
    return this.#size >= this.#max || this.#bytes >= this.#maxBytes
  }

  /** Sends a message; rejects with a typed error if it was not confirmed. */
  send(message: WireMessage, options: SendOptions): Promise<Published> {
    return new Promise((confirmed, failed) => {
      this.#add(message, options, confirmed, failed, 0)
    })
  }

  /** The same with a callback, called once. Time counts from the message's timestamp. */
  add(message: WireMessage, options: SendOptions, settle: Settle, index = 0): void {
    this.#add(message, options, settle, undefined, index)
  }

  #add(
    message: WireMessage,
    options: SendOptions,
    waiter: Settle | ((published: Published) => void),
    reject: ((error: LongshoreError) => void) | undefined,
    index: number,
  ): void {
    const { delayMs, priority, ttlMs, route, signal } = options
    const deadlineAt = message.timestamp + options.deadlineMs
    const seq = this.#seq++
    const entry = new Entry(
      message,
      delayMs,
      priority,
      ttlMs,
      route,
      seq,
      deadlineAt,
      signal,
      waiter,
      reject,
      index,
    )
    if (signal !== undefined) {
      if (signal.aborted) return this.#finish(entry, aborted(entry))
      entry.deafen = onAbort(signal, () => this.#finish(entry, aborted(entry)))
    }
    if (this.#closed) return this.#expire(entry)
    if (deadlineAt < this.#sweepAt) this.#sweepBy(deadlineAt)
    if (!this.#fits(entry) || this.#blocked.size > 0) this.#full(entry)
    else this.#accept(entry)
  }

  #fits(entry: Entry): boolean {
    if (this.#size === 0) return true
    return this.#size < this.#max && this.#bytes + entry.message.body.byteLength <= this.#maxBytes
  }

  #accept(entry: Entry): void {
    entry.place = 'waiting'
    this.#size++
    this.#bytes += entry.message.body.byteLength
    this.#waiting.push(entry)
    this.#schedule()
  }

  #full(entry: Entry): void {
    if (this.#policy === 'block') {
      this.#blocked.push(entry)
      return
    }
    if (this.#policy === 'drop-oldest') {
      while (!this.#fits(entry)) {
        const oldest = this.#oldestUnsent()
        if (oldest === undefined) break
        this.#drop(oldest, 'drop-oldest')
      }
      if (this.#fits(entry)) return this.#accept(entry)
    }
    // Nothing could be pushed out, as all of it is at the driver already: the newest goes.
    this.#drop(entry, this.#policy)
  }

  /** The oldest that surely never left; while the connection is down it is among the returned. */
  #oldestUnsent(): Entry | undefined {
    while (this.#waiting.peek()?.place === 'done') this.#waiting.shift()
    const droppable = (entry: Entry) => entry.place === 'waiting' && !entry.maybeSent
    let oldest: Entry | undefined
    for (const entry of this.#waiting) {
      if (!droppable(entry)) continue
      oldest = entry
      break
    }
    for (const entry of this.#returned) {
      if (droppable(entry) && entry.seq < (oldest?.seq ?? Number.POSITIVE_INFINITY)) oldest = entry
    }
    return oldest
  }

  #drop(entry: Entry, policy: 'drop-oldest' | 'drop-newest'): void {
    const full = `the outgoing buffer is full (${this.#size} messages, ${this.#bytes} bytes)`
    if (this.events.dropped.active) {
      this.events.dropped.emit({ driver: this.driver.name, message: entry.message, policy })
    }
    this.#finish(entry, dropped(entry, policy, full))
  }

  // --- To the driver ---

  #schedule(): void {
    if (this.#scheduled || this.#pause !== undefined) return
    this.#scheduled = true
    void ready.then(this.#flush)
  }

  readonly #flush = (): void => {
    this.#scheduled = false
    while (this.#pause === undefined && this.#waiting.size > 0) {
      const batch: Entry[] = []
      const room = Math.min(batchSize, windowSize - this.#underway.length)
      while (batch.length < room) {
        const entry = this.#waiting.shift()
        if (entry === undefined) break
        if (entry.place !== 'waiting') continue
        entry.place = 'underway'
        entry.slot = this.#underway.length
        this.#underway.push(entry)
        batch.push(entry)
      }
      if (batch.length === 0) return
      this.#hand(batch)
    }
  }

  #hand(batch: readonly Entry[]): void {
    try {
      this.driver.publish(batch, (index, failure) => this.#settled(batch[index], failure))
    } catch (error) {
      // A driver must not throw; what it had taken until then is anybody's guess.
      for (const entry of batch) this.#settled(entry, { outcome: 'unknown', error })
    }
  }

  #leaveUnderway(entry: Entry): void {
    const last = this.#underway.pop()!
    if (last !== entry) {
      this.#underway[entry.slot] = last
      last.slot = entry.slot
    }
  }

  #settled(entry: Entry | undefined, failure?: PublishFailure): void {
    // Late news of a message that its deadline already ended.
    if (entry === undefined || entry.place !== 'underway') return
    if (failure === undefined) {
      this.#failures = 0
      return this.#confirmed(entry)
    }
    const { outcome, error } = failure
    if (outcome === 'rejected') return this.#finish(entry, rejected(entry, error))
    entry.lastError = error
    if (outcome === 'unknown') entry.maybeSent = true
    this.#leaveUnderway(entry)
    entry.place = 'waiting'
    if (this.clock.now() >= entry.deadlineAt || this.#closed) return this.#expire(entry)
    this.#returned.push(entry)
    this.#pause ??= this.clock.setTimer(() => this.#resume(), this.#nextPause())
  }

  #nextPause(): number {
    const pause = Math.min(longestPause, firstPause * 2 ** Math.min(this.#failures++, 10))
    return pause * (0.75 + random(this.clock) * 0.5)
  }

  #resume(): void {
    this.#pause = undefined
    this.#returned.sort((a, b) => b.seq - a.seq)
    for (const entry of this.#returned) if (entry.place === 'waiting') this.#waiting.unshift(entry)
    this.#returned.length = 0
    this.#schedule()
  }

  #confirmed(entry: Entry): void {
    if (this.events.published.active) {
      const durationMs = this.clock.now() - entry.message.timestamp
      this.events.published.emit({ driver: this.driver.name, message: entry.message, durationMs })
    }
    this.#finish(entry, { status: 'confirmed', id: entry.message.id })
  }

  /** Ends an entry, wherever it is. */
  #finish(entry: Entry, outcome: PublishOutcome): void {
    if (entry.place === 'done') return
    if (entry.place === 'underway') this.#leaveUnderway(entry)
    if (entry.place !== 'outside') {
      this.#size--
      this.#bytes -= entry.message.body.byteLength
    }
    entry.place = 'done'
    entry.deafen?.()
    if (outcome.status !== 'confirmed' && this.events['publish-failed'].active) {
      const { error } = outcome
      this.events['publish-failed'].emit({
        driver: this.driver.name,
        message: entry.message,
        error,
      })
    }
    entry.tell(outcome)
    this.#admit()
    if (this.#waiting.size > 0) this.#schedule()
    if (this.#size === 0 && this.#blocked.size === 0)
      for (const wake of this.#idle.splice(0)) wake()
  }

  /** Lets blocked publishers in while there is room. */
  #admit(): void {
    for (let next = this.#blocked.peek(); next !== undefined; next = this.#blocked.peek()) {
      if (next.place === 'outside' && !this.#fits(next)) return
      this.#blocked.shift()
      if (next.place === 'outside') this.#accept(next)
    }
  }

  // --- Deadlines ---

  #sweepBy(at: number): void {
    this.#sweep?.cancel()
    this.#sweepAt = at
    this.#sweep = this.clock.setTimer(() => this.#sweepNow(), at - this.clock.now(), false)
  }

  *#open(): Iterable<Entry> {
    yield* this.#underway
    yield* this.#returned
    yield* this.#waiting
    yield* this.#blocked
  }

  #sweepNow(): void {
    this.#sweepAt = Number.POSITIVE_INFINITY
    const now = this.clock.now()
    let next = Number.POSITIVE_INFINITY
    for (const entry of [...this.#open()]) {
      if (entry.place === 'done') continue
      if (entry.deadlineAt <= now) this.#expire(entry)
      else next = Math.min(next, entry.deadlineAt)
    }
    if (next !== Number.POSITIVE_INFINITY) this.#sweepBy(next)
  }

  #expire(entry: Entry): void {
    this.#finish(entry, expired(entry, this.#closed ? 'the bus closed' : 'its deadline passed'))
  }

  // --- Closing ---

  /** Resolves when nothing is left, or after `timeoutMs` has ended what is. Nothing can be added afterwards. */
  async close(timeoutMs: number): Promise<void> {
    if (this.#size > 0 || this.#blocked.size > 0) {
      await new Promise<void>((resolve) => {
        const timer = this.clock.setTimer(resolve, timeoutMs)
        this.#idle.push(() => {
          timer.cancel()
          resolve()
        })
      })
    }
    this.#closed = true
    for (const entry of [...this.#open()]) if (entry.place !== 'done') this.#expire(entry)
    this.#sweep?.cancel()
    this.#pause?.cancel()
  }

  /** @throws ClosedError */
  assertOpen(): void {
    if (this.#closed) throw new ClosedError('the bus is closed; connect again to publish')
  }
}
