import type {
  DriverSubscription,
  Failure,
  IncomingDelivery,
  RetryRequest,
  Sink,
} from '@longshore/core/driver'
import type { Point } from './chaos.js'
import type { Connection } from './connection.js'
import type { Held, Ledger, Member } from './ledger.js'
import { answered, asks, asksAck, asksDeadLetter, asksRetry, left, succeeded } from './rules.js'

type MaybePromise<T> = T | Promise<T>

/** A subscription between runtime and driver: it tells the ledger what passes, and lets chaos strike. */
export class ObservedSubscription implements DriverSubscription {
  inner!: DriverSubscription
  member!: Member
  readonly sink: Sink
  readonly #ledger: Ledger

  constructor(
    private readonly connection: Connection,
    sink: Sink,
  ) {
    const ledger = connection.world.ledger
    this.#ledger = ledger
    this.sink = {
      deliver: (batch) => {
        for (const delivery of batch) ledger.delivered(this.member, delivery)
        // A run that broke a rule is over; it might go in circles for ever.
        if (ledger.trace.violation === undefined) sink.deliver(batch)
      },
      revoke: (deliveries, reason) => {
        for (const delivery of deliveries) {
          const held = ledger.held.get(delivery)
          if (held === undefined) continue
          ledger.trace.add(`revoked #${held.n} from ${connection.name}: ${reason}`)
          ledger.taken(held, 'revoked', reason.includes('lease'))
        }
        sink.revoke(deliveries, reason)
      },
      fail: (error) => sink.fail(error),
    }
  }

  ack(delivery: IncomingDelivery): MaybePromise<boolean> {
    const ledger = this.#ledger
    return this.#settle(
      'ack',
      delivery,
      (held) => asksAck(ledger, held),
      () => this.inner.ack(delivery) as boolean,
      (held) => {
        // Before the next of its key can begin.
        if (held.run?.explicit === 'ack') succeeded(ledger, held)
        ledger.acked(held)
      },
    )
  }

  retry(delivery: IncomingDelivery, request: RetryRequest): MaybePromise<boolean> {
    const ledger = this.#ledger
    return this.#settle(
      'retry',
      delivery,
      (held) => asksRetry(ledger, held, request),
      () => this.inner.retry(delivery, request) as boolean,
      (held) => ledger.retried(held, request),
    )
  }

  deadLetter(delivery: IncomingDelivery, failure: Failure): MaybePromise<boolean> {
    const ledger = this.#ledger
    return this.#settle(
      'dead-letter',
      delivery,
      (held) => asksDeadLetter(ledger, held, failure),
      () => this.inner.deadLetter(delivery, failure) as boolean,
      (held) => ledger.buried(held),
    )
  }

  #settle(
    point: Point,
    delivery: IncomingDelivery,
    ask: (held: Held) => void,
    effect: () => boolean,
    record: (held: Held) => void,
  ): MaybePromise<boolean> {
    const ledger = this.#ledger
    const held = ledger.held.get(delivery)!
    if (!this.connection.dead) ask(held)
    const { trace } = ledger
    const settle = () => {
      const taken = effect()
      if (trace.active) trace.add(`${point} #${held.n} by ${this.connection.name}: ${taken}`)
      if (taken) record(held)
      return taken
    }
    const done = (taken: boolean) => {
      if (!this.connection.dead) answered(ledger, held, taken)
      return taken
    }
    const failed = (error: unknown) => {
      held.underway = false
      throw error
    }
    try {
      const taken = this.connection.around(point, settle)
      return typeof taken === 'boolean' ? done(taken) : taken.then(done, failed)
    } catch (error) {
      return failed(error)
    }
  }

  release(deliveries: readonly IncomingDelivery[]): void | Promise<void> {
    const ledger = this.#ledger
    const all = deliveries.map((delivery) => ledger.held.get(delivery)!)
    if (!this.connection.dead) for (const held of all) asks(ledger, held, 'release')
    const settle = () => {
      const giving = this.inner.release(deliveries)
      if (this.connection.dead) return giving
      for (const held of all) {
        if (ledger.trace.active) ledger.trace.add(`release #${held.n} by ${this.connection.name}`)
        ledger.released(held)
      }
      return giving
    }
    const done = () => {
      for (const held of all) [held.underway, held.answered] = [false, true]
    }
    const failed = (error: unknown) => {
      for (const held of all) held.underway = false
      throw error
    }
    try {
      const giving = this.connection.around('release', settle)
      return giving instanceof Promise ? giving.then(done, failed) : done()
    } catch (error) {
      return failed(error)
    }
  }

  heartbeat(): void {
    if (!this.connection.strikes()) this.inner.heartbeat()
  }

  pause(): void {
    this.inner.pause()
  }

  resume(): void {
    this.inner.resume()
  }

  async stop(): Promise<void> {
    await this.connection.around('stop', () => this.inner.stop())
  }

  async close(): Promise<void> {
    await this.connection.around('leave', () => this.inner.close())
    left(this.#ledger, this.member)
  }
}
