import type {
  CloseReport,
  ConsumeMiddleware,
  Publish,
  Subscription,
  SubscriptionState,
} from '../api.js'
import type { Clock, Timer } from '../clock.js'
import type { DeadLetterReason } from '../dead-letter.js'
import type { Driver, DriverSubscription, IncomingDelivery } from '../driver.js'
import { type Duration, toMs } from '../duration.js'
import { CloseInHandlerError, PermanentError, toError, wrapDriverError } from '../errors.js'
import type { EventSources } from '../events.js'
import type { Logger } from '../logger.js'
import { isPromise, type MaybePromise } from '../promise.js'
import type { Topic } from '../topic.js'
import { buildChain } from './chain.js'
import { CircuitView } from './circuit-view.js'
import { Context, type ContextHost } from './context.js'
import { backoff, decide, exhaustedReason } from './failure.js'
import { HandBack } from './hand-back.js'
import { calledFromHandler, marker } from './in-handler.js'
import { LaneSchedule, PlainSchedule, type Schedule } from './schedule.js'
import type { Settings } from './settings.js'
import { Settler } from './settler.js'

export interface ConsumerDeps {
  readonly driver: Driver
  readonly clock: Clock
  readonly events: EventSources
  readonly logger: Logger
  readonly publish: Publish
  readonly middleware: readonly ConsumeMiddleware[]
  onEnd(consumer: Consumer): void
}

/** How long the driver may take to leave, beyond the timeout of `close`, in milliseconds. */
const leaveMs = 1000

/**
 * The consumer runtime: takes what a driver pushes, runs it within its bounds, and settles each delivery once. Order of
 * life: `start`, then deliveries come; `close` stops the intake, hands back, waits, leaves.
 */
export class Consumer implements Subscription, ContextHost {
  /** Called when closing begins, for those who hold started deliveries back. */
  onClosing: (() => void) | undefined
  readonly ordered: boolean
  readonly clock: Clock
  readonly publish: Publish
  readonly done: Promise<void>
  readonly #chain: (context: Context) => MaybePromise<unknown>
  readonly #schedule: Schedule
  readonly #settler: Settler
  readonly #circuits: CircuitView | undefined
  readonly #running: Context[] = []
  /** Retries that wait in this process, each with the timer that ends its wait. */
  readonly #waiting = new Map<Context, Timer>()
  readonly #ended = new AbortController()
  #subscription!: DriverSubscription
  #state: SubscriptionState = 'running'
  #unsettled = 0
  #pumping = false
  #heartbeat: Timer | undefined
  #tripped: Timer | undefined
  #closing: Promise<CloseReport> | undefined
  #whenIdle: (() => void) | undefined
  #finish!: { resolve: () => void; reject: (error: unknown) => void }

  constructor(
    private readonly deps: ConsumerDeps,
    of: Topic<never, unknown>,
    private readonly settings: Settings,
    handler: (payload: unknown, context: Context) => unknown,
  ) {
    const { spec, circuits } = settings
    const { driver, clock, events, logger } = deps
    this.clock = clock
    this.publish = deps.publish
    this.ordered = spec.order === 'key'
    this.#chain = buildChain(of, settings, deps.middleware, handler, this.ordered)
    this.#schedule = this.ordered ? new LaneSchedule() : new PlainSchedule()
    if (circuits !== undefined) {
      this.#circuits = new CircuitView(circuits, spec.topic, spec.group, settings.coolDownMs, clock)
    }
    const ended = this.#ended.signal
    this.#settler = new Settler({
      driver,
      clock,
      events,
      logger,
      settings,
      circuits: this.#circuits,
      ended,
    })
    this.done = new Promise((resolve, reject) => {
      this.#finish = { resolve, reject }
    })
    this.done.catch(() => {})
  }

  get topic(): string {
    return this.settings.spec.topic
  }

  get group(): string {
    return this.settings.spec.group
  }

  get state(): SubscriptionState {
    return this.#state
  }

  get running(): number {
    return this.#running.length
  }

  get openCircuits(): number {
    return this.#circuits?.size ?? 0
  }

  async start(): Promise<void> {
    const { signal, spec } = this.settings
    await this.#circuits?.start()
    try {
      this.#subscription = await this.deps.driver.subscribe(spec, {
        deliver: (batch) => this.#deliver(batch),
        revoke: (deliveries, reason) => this.#revoke(deliveries, reason),
        fail: (error) => this.#failed(error),
      })
    } catch (error) {
      this.#circuits?.stop()
      throw wrapDriverError(error, `subscribing to '${spec.topic}' as group '${spec.group}'`)
    }
    this.#settler.subscription = this.#subscription
    if (signal?.aborted) void this.#end(0)
    else signal?.addEventListener('abort', () => void this.#end(closeMs), { once: true })
    this.#pump()
  }

  // --- Deliveries come and go ---

  #deliver(batch: readonly IncomingDelivery[]): void {
    this.#unsettled += batch.length
    for (const incoming of batch) {
      this.#schedule.add(new Context(this, incoming, incoming.attempt, incoming.firstFailedAt))
    }
    this.#beat()
    this.#pump()
    // What comes after the intake was stopped goes straight back.
    if (!this.#mayStart()) void this.#returnUnstarted()
  }

  #revoke(deliveries: readonly IncomingDelivery[], reason: string): void {
    const lost = new Set(deliveries)
    const { events, driver } = this.deps
    const tell = (context: Context) => {
      context.revoke(reason)
      if (!events.revoked.active) return
      const { topic, group, attempt, incoming } = context
      const { message } = incoming
      events.revoked.emit({ driver: driver.name, topic, group, attempt, message, reason })
    }
    // A running handler keeps its lane until it ends: no second one of its key may start beside it.
    for (const context of this.#running) if (lost.has(context.incoming)) tell(context)
    for (const context of [...this.#waiting.keys()]) {
      if (!lost.has(context.incoming)) continue
      tell(context)
      this.#forget(context)
    }
    const kept: Context[] = []
    for (const context of this.#schedule.drain()) {
      if (!lost.has(context.incoming)) {
        kept.push(context)
        continue
      }
      tell(context)
      this.#unsettled--
    }
    for (const context of kept) this.#schedule.add(context)
    this.#pump()
  }

  /** Ends a wait for a retry in this process. */
  #forget(context: Context): void {
    this.#waiting.get(context)?.cancel()
    this.#waiting.delete(context)
    this.#unsettled--
    this.#schedule.done(context)
  }

  #failed(error: unknown): void {
    if (this.#closing !== undefined) return
    const wrapped = wrapDriverError(
      error,
      `the subscription of '${this.topic}' as group '${this.group}' ended`,
    )
    this.deps.logger.error(wrapped.message, {
      topic: this.topic,
      group: this.group,
      code: wrapped.code,
    })
    this.#state = 'failed'
    this.#finish.reject(wrapped)
    void this.#end(closeMs)
  }

  #beat(): void {
    if (this.#heartbeat !== undefined || !this.deps.driver.capabilities.lease) return
    this.#heartbeat = this.clock.setTimer(
      () => {
        this.#heartbeat = undefined
        if (this.#unsettled === 0 || this.#ended.signal.aborted) return
        this.#subscription?.heartbeat()
        this.#beat()
      },
      this.settings.spec.leaseMs / 3,
      false,
    )
  }

  // --- Running ---

  #pump(): void {
    // Settling at once comes back here: the loop that is running goes on, so that the stack stays flat.
    if (this.#pumping || this.#subscription === undefined) return
    this.#pumping = true
    while (this.#running.length < this.settings.concurrency && this.#mayStart()) {
      const context = this.#schedule.next()
      if (context === undefined) break
      this.#start(context)
    }
    this.#pumping = false
  }

  #mayStart(): boolean {
    return this.#state === 'running' && this.#closing === undefined
  }

  #start(context: Context): void {
    context.slot = this.#running.length
    this.#running.push(context)
    const { events } = this.deps
    if (events.handled.active) context.startedAt = this.clock.now()
    const { maxDeliveries } = this.settings.retry
    if (context.deliveries > maxDeliveries) {
      const error = new PermanentError(
        `delivered ${context.deliveries} times without being settled (maxDeliveries is ${maxDeliveries}): ` +
          'it may have ended its consumers',
      )
      void this.#settleAndFinish(context, this.#settler.bury(context, error, 'delivery-limit'))
      return
    }
    if (this.#circuits !== undefined && !this.#passes(context, this.#circuits)) return
    if (events.started.active) events.started.emit(this.#about(context))
    longshoreRunsHandler(this.#chain, context, this.#outcome)
  }

  /** Whether the key's circuit lets the message through; if not, it is parked. */
  #passes(context: Context, circuits: CircuitView): boolean {
    const { key } = context
    const state = key === undefined ? 'closed' : circuits.state(key)
    if (key === undefined || state === 'closed') return true
    if (state === 'half-open') {
      context.trial = true
      this.#tellCircuit(key, 'half-open')
      return true
    }
    const error = new PermanentError(
      `the circuit of key '${key}' is open: an earlier message of it failed`,
    )
    void this.#settleAndFinish(context, this.#settler.bury(context, error, 'parked'))
    return false
  }

  #tellCircuit(key: string, state: 'open' | 'half-open' | 'closed'): void {
    const { events, driver } = this.deps
    if (!events.circuit.active) return
    events.circuit.emit({ driver: driver.name, topic: this.topic, group: this.group, key, state })
  }

  readonly #outcome: Outcome = {
    succeeded: (context) => this.#succeeded(context),
    failed: (context, thrown) =>
      void this.#settleAndFinish(context, this.attemptFailed(context, thrown)),
  }

  #succeeded(context: Context): void {
    this.settings.killSwitch?.record(true)
    if (context.trial && context.key !== undefined) {
      void this.#settleAndFinish(context, this.#closeCircuit(context, context.key))
      return
    }
    if (context.settlement !== 'open') return this.#finished(context)
    const acked = this.#settler.ack(context)
    if (isPromise(acked))
      void this.#settleAndFinish(
        context,
        acked.then((ok) => this.#handled(context, ok)),
      )
    else {
      this.#handled(context, acked)
      this.#finished(context)
    }
  }

  async #closeCircuit(context: Context, key: string): Promise<void> {
    try {
      await this.#circuits?.close(key)
      this.#tellCircuit(key, 'closed')
    } catch (error) {
      this.deps.logger.warn(
        `closing the circuit of key '${key}' failed; the next message tries again`,
        {
          error: toError(error).message,
        },
      )
    }
    this.#handled(context, await this.#settler.ack(context))
  }

  #handled(context: Context, acked: boolean): void {
    const { events } = this.deps
    if (!acked || !events.handled.active) return
    events.handled.emit({
      ...this.#about(context),
      durationMs: this.clock.now() - context.startedAt,
    })
  }

  async #settleAndFinish(context: Context, settling: Promise<unknown>): Promise<void> {
    try {
      await settling
    } catch (error) {
      // Settling reports its failures itself; this is a listener's or a store's. The message stays unsettled.
      this.deps.logger.error(`message ${context.incoming.message.id} could not be settled`, {
        error,
      })
    }
    this.#finished(context)
  }

  #finished(context: Context): void {
    const last = this.#running.pop()!
    if (last !== context) {
      this.#running[context.slot] = last
      last.slot = context.slot
    }
    if (context.again !== undefined && !context.revoked && this.#closing === undefined) {
      this.#waitForRetry(context, context.again.dueAt)
    } else {
      this.#unsettled--
      this.#schedule.done(context)
      if (context.again !== undefined) void this.#release([context.incoming])
    }
    if (this.#running.length === 0) this.#whenIdle?.()
    this.#pump()
  }

  /** The broker can't hold a retry back: it waits here, unsettled, and keeps its lane. */
  #waitForRetry(context: Context, dueAt: number): void {
    const timer = this.clock.setTimer(() => {
      this.#waiting.delete(context)
      const { request } = context.again!
      this.#schedule.again(
        new Context(this, context.incoming, request.attempt, request.firstFailedAt),
      )
      this.#pump()
    }, dueAt - this.clock.now())
    this.#waiting.set(context, timer)
  }

  #about(context: Context) {
    const { topic, group, attempt, incoming } = context
    return { driver: this.deps.driver.name, topic, group, attempt, message: incoming.message }
  }

  // --- Settling, as contexts ask for it ---

  async ack(context: Context): Promise<boolean> {
    const acked = await this.#settler.ack(context)
    this.#handled(context, acked)
    return acked
  }

  async retry(context: Context, delay: Duration | undefined, thrown: unknown): Promise<boolean> {
    const delayMs =
      delay === undefined
        ? backoff(this.settings.retry, context.attempt, this.clock)
        : toMs(delay, 'the delay of retry')
    const error =
      thrown === undefined ? new Error('the handler asked for a retry') : toError(thrown)
    return this.#settler.retry(context, delayMs, error)
  }

  async deadLetter(
    context: Context,
    thrown: unknown,
    reason: DeadLetterReason = 'requested',
  ): Promise<boolean> {
    const error =
      thrown === undefined ? new PermanentError('the handler asked for it') : toError(thrown)
    return this.#settler.bury(context, error, reason)
  }

  /** The failure policy: what becomes of a delivery whose chain threw. */
  async attemptFailed(context: Context, thrown: unknown): Promise<boolean> {
    if (thrown instanceof HandBack) {
      await this.#settler.handBack([context])
      return true
    }
    const error = toError(thrown)
    const { events, logger } = this.deps
    if (context.settlement !== 'open') {
      logger.warn(
        `the handler of message ${context.incoming.message.id} failed after it had settled it`,
        { error },
      )
      return false
    }
    if (events.failed.active) events.failed.emit({ ...this.#about(context), error })
    if (this.settings.killSwitch?.record(false)) this.#trip()
    // It is somebody else's now: not our failure to count.
    if (context.revoked) return false
    const { customDeadLetter, customRetry, retry } = this.settings
    if (customDeadLetter !== undefined) return this.#bury(context, error, 'escaped')
    if (context.trial) return this.#bury(context, error, 'parked')
    if (customRetry !== undefined) return this.#bury(context, error, exhaustedReason(error))
    const decision = decide(retry, context.attempt, thrown, this.clock)
    if (decision.retryInMs !== undefined)
      return this.#settler.retry(context, decision.retryInMs, error)
    return this.#bury(context, error, decision.reason)
  }

  async #bury(context: Context, error: Error, reason: DeadLetterReason): Promise<boolean> {
    // Nothing is dead-lettered because of a shutdown: the next consumer makes the last attempt again.
    if (this.#closing !== undefined) {
      await this.#settler.handBack([context])
      return true
    }
    return this.#settler.bury(context, error, reason)
  }

  // --- Pausing ---

  pause(): void {
    if (this.#state !== 'running' && this.#state !== 'tripped') return
    this.#tripped?.cancel()
    this.#halt('paused')
  }

  resume(): void {
    if (this.#state !== 'paused' && this.#state !== 'tripped') return
    this.#tripped?.cancel()
    this.#state = 'running'
    this.settings.killSwitch?.reset()
    this.#subscription.resume()
    this.#pump()
  }

  #halt(state: 'paused' | 'tripped'): void {
    this.#state = state
    this.#subscription.pause()
    void this.#returnUnstarted()
  }

  #trip(): void {
    const { killSwitch } = this.settings
    if (killSwitch === undefined || this.#state !== 'running' || this.#closing !== undefined) return
    this.#tellKillSwitch('tripped', killSwitch.failureRate)
    this.deps.logger.warn(
      `too many failures: the subscription pauses for ${killSwitch.pauseMs} ms`,
      {
        topic: this.topic,
        group: this.group,
        failureRate: killSwitch.failureRate,
      },
    )
    this.#halt('tripped')
    this.#tripped = this.clock.setTimer(() => {
      this.#tellKillSwitch('resumed', 0)
      this.resume()
    }, killSwitch.pauseMs)
  }

  #tellKillSwitch(state: 'tripped' | 'resumed', failureRate: number): void {
    const { events, driver } = this.deps
    const event = events['kill-switch']
    if (!event.active) return
    event.emit({ driver: driver.name, topic: this.topic, group: this.group, state, failureRate })
  }

  async #returnUnstarted(): Promise<void> {
    const unstarted = this.#schedule.drain()
    this.#unsettled -= unstarted.length
    await this.#settler.handBack(unstarted)
  }

  async #release(deliveries: readonly IncomingDelivery[]): Promise<void> {
    try {
      await this.#subscription.release(deliveries)
    } catch (error) {
      this.deps.logger.warn(
        'handing back messages failed; they return when the subscription ends',
        {
          error: toError(error).message,
        },
      )
    }
  }

  // --- Closing ---

  /** @throws CloseInHandlerError */
  close(options: { readonly timeout?: Duration } = {}): Promise<CloseReport> {
    if (this.#running.length > 0 && calledFromHandler()) return Promise.reject(closeInHandler())
    return this.#end(toMs(options.timeout ?? closeMs, 'close timeout'))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  /** Closing without the question who asks. */
  end(timeoutMs: number): Promise<CloseReport> {
    return this.#end(timeoutMs)
  }

  #end(timeoutMs: number): Promise<CloseReport> {
    this.#closing ??= this.#shutDown(timeoutMs)
    return this.#closing
  }

  async #shutDown(timeoutMs: number): Promise<CloseReport> {
    const failed = this.#state === 'failed'
    if (!failed) this.#state = 'closing'
    this.#tripped?.cancel()
    // Lets the caller's own stack end: `#closing` must be set before anything comes back here.
    await undefined
    const deadline = this.clock.now() + timeoutMs
    let timeUp!: () => void
    const timedOut = new Promise<void>((resolve) => {
      timeUp = resolve
    })
    const timer = this.clock.setTimer(timeUp, timeoutMs)
    this.onClosing?.()
    await Promise.race([this.#quietly(this.#subscription.stop()), timedOut])
    await Promise.race([Promise.all([this.#returnUnstarted(), this.#returnWaiting()]), timedOut])
    const idle = new Promise<void>((resolve) => {
      this.#whenIdle = resolve
      if (this.#running.length === 0) resolve()
    })
    await Promise.race([idle, timedOut])
    timer.cancel()
    const abandoned = this.#running.length
    for (const context of this.#running) {
      context.revoke('closing ran out of time; the message goes to another consumer')
    }
    this.#ended.abort()
    this.#heartbeat?.cancel()
    this.#circuits?.stop()
    await this.#leave(Math.max(leaveMs, deadline - this.clock.now()))
    if (!failed) this.#state = 'closed'
    if (abandoned > 0) {
      this.deps.logger.warn(
        `closing gave up on ${abandoned} running handlers after ${timeoutMs} ms`,
        {
          topic: this.topic,
          group: this.group,
        },
      )
    }
    this.deps.onEnd(this)
    this.#finish.resolve()
    return { drained: abandoned === 0, abandoned }
  }

  /** Retries that wait in this process go back as they came. */
  async #returnWaiting(): Promise<void> {
    const waiting = [...this.#waiting.keys()]
    for (const context of waiting) this.#forget(context)
    if (waiting.length > 0) await this.#release(waiting.map((context) => context.incoming))
  }

  async #leave(ms: number): Promise<void> {
    let timer: Timer | undefined
    const late = new Promise<void>((resolve) => {
      timer = this.clock.setTimer(resolve, ms)
    })
    await Promise.race([this.#quietly(this.#subscription.close()), late])
    timer?.cancel()
  }

  async #quietly(step: Promise<void>): Promise<void> {
    try {
      await step
    } catch (error) {
      this.deps.logger.warn(
        `closing the subscription of '${this.topic}': ${toError(error).message}`,
      )
    }
  }
}

/** How long closing waits for handlers unless told otherwise, in milliseconds. */
export const closeMs = 30_000

export function closeInHandler(): CloseInHandlerError {
  return new CloseInHandlerError(
    'close() was called by a handler, and would wait for that handler; let it return first, ' +
      'for instance: setImmediate(() => bus.close())',
  )
}

interface Outcome {
  succeeded(context: Context): void
  failed(context: Context, thrown: unknown): void
}

/** Its name is what `calledFromHandler` looks for. */
function longshoreRunsHandler(
  chain: (context: Context) => MaybePromise<unknown>,
  context: Context,
  outcome: Outcome,
): void {
  let result: MaybePromise<unknown>
  try {
    result = chain(context)
  } catch (thrown) {
    return outcome.failed(context, thrown)
  }
  if (isPromise(result)) void awaitHandler[marker]!(result, context, outcome)
  else outcome.succeeded(context)
}

const awaitHandler = {
  async [marker](result: Promise<unknown>, context: Context, outcome: Outcome): Promise<void> {
    try {
      await result
    } catch (thrown) {
      return outcome.failed(context, thrown)
    }
    outcome.succeeded(context)
  },
}
