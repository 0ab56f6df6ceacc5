import { onAbort } from '../abort.js'
import type {
  CloseOptions,
  CloseReport,
  ConsumeMiddleware,
  Publish,
  Subscription,
  SubscriptionState,
} from '../api.js'
import type { Clock, Timer } from '../clock.js'
import { type DeadLetterReason, deadLetterReasons } from '../dead-letter.js'
import type { Driver, DriverSubscription, IncomingDelivery } from '../driver.js'
import { type Duration, toMs } from '../duration.js'
import { ClosedError, PermanentError, toError, wrapDriverError } from '../errors.js'
import type { EventSources } from '../events.js'
import type { Logger } from '../logger.js'
import { oneOf } from '../options.js'
import { isPromise } from '../promise.js'
import type { Topic } from '../topic.js'
import { Announcer } from './announcer.js'
import { buildChain } from './chain.js'
import { CircuitView } from './circuit-view.js'
import { closeMs, closeTimeout } from './close-options.js'
import { Context, type ContextHost } from './context.js'
import { backoff, decide, exhaustedReason, isUnreadable } from './failure.js'
import { HandBack } from './hand-back.js'
import { Holds } from './holds.js'
import { calledFromHandler, closeInHandler, handlerRunner, newMarker } from './in-handler.js'
import { Pool } from './pool.js'
import { LaneSchedule, PlainSchedule, type Schedule } from './schedule.js'
import type { Settings } from './settings.js'
import { Settler } from './settler.js'
import { Survived } from './survived.js'

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

/** A subscription that comes after its signal aborted is left at once. */
async function unlessAborted(
  joining: Promise<DriverSubscription>,
  signal: AbortSignal,
): Promise<DriverSubscription> {
  let deafen: (() => void) | undefined
  const aborted = new Promise<never>((_, reject) => {
    deafen = onAbort(signal, () => {
      joining.then((subscription) => subscription.close()).catch(() => {})
      reject(new ClosedError('it was aborted', { cause: signal.reason }))
    })
  })
  try {
    return await Promise.race([joining, aborted])
  } finally {
    deafen?.()
  }
}

/**
 * The consumer runtime: takes what a driver pushes, runs it within its bounds, and settles each delivery once. One file
 * over the usual length, as it is one state machine: `start`, then deliveries come; `close` stops the intake, hands back,
 * waits, leaves.
 */
export class Consumer implements Subscription, ContextHost {
  /** Called when closing begins, for those who hold started deliveries back. */
  onClosing: (() => void) | undefined
  readonly ordered: boolean
  readonly clock: Clock
  readonly logger: Logger
  readonly publish: Publish
  hasty = false
  readonly done: Promise<void>
  readonly marker = newMarker()
  readonly #run: (context: Context) => void
  readonly #schedule: Schedule
  readonly #settler: Settler
  readonly #circuits: CircuitView | undefined
  readonly #announce: Announcer
  readonly #running = new Pool()
  readonly #holds: Holds
  readonly #survived = new Survived()
  readonly #ended = new AbortController()
  /** Undefined until the driver has joined the group. */
  #subscription: DriverSubscription | undefined
  #starting: Promise<void> = Promise.resolve()
  #state: SubscriptionState = 'running'
  /** Deliveries that the broker waits for us to settle. */
  #unsettled = 0
  #pumping = false
  #stopping = false
  /** Hand-backs under way; nothing starts before it is known whether the broker took them. */
  #returning = 0
  #heartbeat: Timer | undefined
  #tripped: Timer | undefined
  /** Stops listening to the user's signal. */
  #deafen: (() => void) | undefined
  #closing: Promise<CloseReport> | undefined
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
    this.logger = logger
    this.publish = deps.publish
    this.ordered = spec.order === 'key'
    const chain = buildChain(of, settings, deps.middleware, handler, this.ordered, this.marker)
    this.#run = handlerRunner(this.marker, chain, {
      succeeded: (context) => this.#succeeded(context),
      failed: (context, thrown) =>
        void this.#settleAndFinish(context, this.attemptFailed(context, thrown)),
    })
    this.#schedule = this.ordered ? new LaneSchedule() : new PlainSchedule()
    this.#holds = new Holds(clock, (context) => this.#runAgain(context))
    this.#announce = new Announcer(events, driver.name, spec.topic, spec.group)
    if (circuits !== undefined) {
      this.#circuits = new CircuitView(circuits, spec.topic, spec.group, settings.coolDownMs, clock)
    }
    this.#settler = new Settler({
      driver,
      clock,
      announce: this.#announce,
      logger,
      settings,
      circuits: this.#circuits,
      ended: this.#ended.signal,
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
    return this.#running.size
  }

  get openCircuits(): number {
    return this.#circuits?.size ?? 0
  }

  start(): Promise<void> {
    this.#starting = this.#join()
    return this.#starting
  }

  async #join(): Promise<void> {
    const { signal, spec } = this.settings
    if (signal?.aborted) {
      throw new ClosedError(`subscribing to '${spec.topic}' was aborted`, { cause: signal.reason })
    }
    let subscription: DriverSubscription
    try {
      await this.#circuits?.start()
      const joining = this.deps.driver.subscribe(spec, {
        deliver: (batch) => this.#deliver(batch),
        revoke: (deliveries, reason) => this.#revoke(deliveries, reason),
        fail: (error) => this.#failed(error),
      })
      subscription = await (signal === undefined ? joining : unlessAborted(joining, signal))
    } catch (error) {
      this.#circuits?.stop()
      this.#heartbeat?.cancel()
      throw wrapDriverError(error, `subscribing to '${spec.topic}' as group '${spec.group}'`)
    }
    if (this.#ended.signal.aborted) {
      await subscription.close()
      throw new ClosedError('the bus was closed while it subscribed')
    }
    this.#subscription = subscription
    this.#settler.subscription = subscription
    if (this.#closing !== undefined) throw new ClosedError('it was closed while it subscribed')
    if (signal !== undefined) this.#deafen = onAbort(signal, () => void this.end(closeMs))
    if (signal?.aborted) void this.end(closeMs)
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
    // What still comes goes straight back; while the intake is being stopped it would only come again, so it waits.
    const ending = this.#closing !== undefined && !this.#stopping
    if (ending || this.#state === 'paused' || this.#state === 'tripped')
      void this.#returnUnstarted()
  }

  #revoke(deliveries: readonly IncomingDelivery[], reason: string): void {
    const lost = new Set(deliveries)
    const isLost = (context: Context) => lost.has(context.incoming)
    const revoke = (context: Context) => {
      context.revoke(reason)
      this.#survived.add(context)
      this.#announce.revoked(context, reason)
    }
    // A running handler keeps its lane until it ends: no second one of its key may start beside it.
    for (const context of [...this.#running].filter(isLost)) revoke(context)
    for (const context of this.#holds.take(isLost)) {
      revoke(context)
      this.#leaves(context)
    }
    for (const context of this.#schedule.drain()) {
      if (!isLost(context)) {
        this.#schedule.add(context)
        continue
      }
      revoke(context)
      this.#unsettled--
    }
    this.#pump()
  }

  /** A started delivery is over for this consumer: settled, handed back or lost. */
  #leaves(context: Context): void {
    this.#unsettled--
    this.#schedule.done(context)
  }

  #failed(error: unknown): void {
    if (this.#closing !== undefined) return
    const { topic, group } = this
    const wrapped = wrapDriverError(
      error,
      `the subscription of '${topic}' as group '${group}' ended`,
    )
    this.logger.error(wrapped.message, { topic, group, code: wrapped.code })
    this.#state = 'failed'
    this.#finish.reject(wrapped)
    void this.end(closeMs)
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
    try {
      while (this.#running.size < this.settings.concurrency && this.#mayStart()) {
        const context = this.#schedule.next()
        if (context === undefined) break
        this.#start(context)
      }
    } finally {
      this.#pumping = false
    }
  }

  #mayStart(): boolean {
    return this.#state === 'running' && this.#closing === undefined && this.#returning === 0
  }

  #start(context: Context): void {
    this.#running.add(context)
    if (this.#announce.timed) context.startedAt = this.clock.now()
    const { maxDeliveries } = this.settings.retry
    if (context.deliveries > maxDeliveries && this.#survived.fatal(context) > maxDeliveries) {
      const error = new PermanentError(
        `delivered ${context.deliveries} times without being settled (maxDeliveries is ${maxDeliveries}): ` +
          'it may have ended its consumers',
      )
      void this.#settleAndFinish(context, this.#settler.bury(context, error, 'delivery-limit'))
      return
    }
    if (this.#circuits !== undefined && !this.#passes(context, this.#circuits)) return
    this.#announce.started(context)
    this.#run(context)
  }

  /** Whether the key's circuit lets the message through; if not, it is parked. */
  #passes(context: Context, circuits: CircuitView): boolean {
    const { key } = context
    const state = key === undefined ? 'closed' : circuits.state(key)
    if (key === undefined || state === 'closed') return true
    if (state === 'half-open') {
      context.trial = true
      this.#announce.circuit(key, 'half-open')
      return true
    }
    const error = new PermanentError(
      `the circuit of key '${key}' is open: an earlier message failed`,
    )
    void this.#settleAndFinish(context, this.#settler.bury(context, error, 'parked'))
    return false
  }

  #succeeded(context: Context): void {
    const good = (context.settledBy ?? 'ack') === 'ack'
    if (good) this.settings.killSwitch?.record(true)
    if (context.trial && context.key !== undefined && good) {
      void this.#settleAndFinish(context, this.#closeCircuit(context, context.key))
      return
    }
    if (context.settlement !== 'open') return this.#finished(context)
    const acked = this.#settler.ack(context)
    if (isPromise(acked)) {
      void this.#settleAndFinish(
        context,
        acked.then((taken) => this.#handled(context, taken)),
      )
      return
    }
    this.#handled(context, acked)
    this.#finished(context)
  }

  async #closeCircuit(context: Context, key: string): Promise<void> {
    try {
      await this.#circuits?.close(key)
      this.#announce.circuit(key, 'closed')
    } catch (error) {
      this.logger.warn(`closing the circuit of key '${key}' failed; the next message tries again`, {
        error: toError(error).message,
      })
    }
    this.#handled(context, await this.#settler.ack(context))
  }

  #handled(context: Context, acked: boolean): void {
    if (acked && this.#announce.timed) this.#announce.handled(context, this.clock.now())
  }

  async #settleAndFinish(context: Context, settling: Promise<unknown>): Promise<void> {
    try {
      await settling
    } catch (error) {
      // Settling reports its failures itself; this is a mistake of ours. The message stays unsettled.
      const { id } = context.incoming.message
      this.logger.error(`message ${id} could not be settled`, { error })
    } finally {
      this.#finished(context)
    }
  }

  #finished(context: Context): void {
    const { again } = context
    if (again !== undefined && !context.revoked && this.#closing === undefined) {
      this.#holds.add(context, again.dueAt)
    } else {
      this.#leaves(context)
      if (again !== undefined) void this.#release([context])
    }
    this.#running.remove(context)
    this.#pump()
  }

  #runAgain(context: Context): void {
    const { attempt, firstFailedAt } = context.again!.request
    this.#schedule.again(new Context(this, context.incoming, attempt, firstFailedAt))
    this.#pump()
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
    if (thrown !== undefined) this.#countFailure(context, error)
    return this.#settler.retry(context, delayMs, error)
  }

  async deadLetter(
    context: Context,
    thrown: unknown,
    reason: DeadLetterReason = 'requested',
  ): Promise<boolean> {
    oneOf('the reason of deadLetter', reason, deadLetterReasons)
    const error =
      thrown === undefined ? new PermanentError('the handler asked for it') : toError(thrown)
    if (thrown !== undefined) this.#countFailure(context, error)
    return this.#settler.bury(context, error, reason)
  }

  /** The failure policy: what becomes of a delivery whose chain threw. */
  async attemptFailed(context: Context, thrown: unknown): Promise<boolean> {
    // Settled by whoever threw it; middleware may have seen it pass.
    if (thrown instanceof HandBack) return true
    const error = toError(thrown)
    if (context.settlement !== 'open') {
      const { id } = context.incoming.message
      this.logger.warn(`the handler of message ${id} failed after it had settled it`, {
        error,
      })
      return false
    }
    this.#countFailure(context, error)
    // It is somebody else's now: there is nothing to settle.
    if (context.revoked) return this.#settler.lose(context)
    const { customDeadLetter, customRetry, retry } = this.settings
    if (customDeadLetter !== undefined) return this.#bury(context, error, 'escaped')
    if (context.trial)
      return this.#bury(context, error, isUnreadable(error) ? exhaustedReason(error) : 'parked')
    if (customRetry !== undefined) return this.#bury(context, error, exhaustedReason(error))
    const decision = decide(retry, context.attempt, thrown, this.clock)
    if (decision.retryInMs === undefined) return this.#bury(context, error, decision.reason)
    return this.#settler.retry(context, decision.retryInMs, error)
  }

  #countFailure(context: Context, error: Error): void {
    if (context.settlement !== 'open') return
    this.#announce.failed(context, error)
    if (this.settings.killSwitch?.record(false)) this.#trip()
  }

  async #bury(context: Context, error: Error, reason: DeadLetterReason): Promise<boolean> {
    if (this.#closing === undefined) return this.#settler.bury(context, error, reason)
    // Nothing is dead-lettered because of a shutdown: the next consumer makes the last attempt again.
    await this.handBack([context])
    return true
  }

  async handBack(contexts: readonly Context[]): Promise<void> {
    await this.#handBack(contexts)
  }

  /** Brokers may count a delivery for what is handed back, though nobody failed it. */
  async #handBack(contexts: readonly Context[]): Promise<readonly Context[]> {
    const kept = await this.#settler.handBack(contexts)
    for (const context of contexts) if (!kept.includes(context)) this.#survived.add(context)
    return kept
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
    this.#subscription?.resume()
    this.#pump()
  }

  #halt(state: 'paused' | 'tripped'): void {
    this.#state = state
    this.#subscription?.pause()
    void this.#returnUnstarted()
  }

  #trip(): void {
    const { killSwitch } = this.settings
    if (killSwitch === undefined || !this.#mayStart()) return
    const { failureRate, pauseMs } = killSwitch
    this.#announce.killSwitch('tripped', failureRate)
    const { topic, group } = this
    this.logger.warn(`too many failures: the subscription pauses for ${pauseMs} ms`, {
      topic,
      group,
      failureRate,
    })
    this.#halt('tripped')
    this.#tripped = this.clock.setTimer(() => {
      this.#announce.killSwitch('resumed', 0)
      this.resume()
    }, pauseMs)
  }

  async #returnUnstarted(): Promise<void> {
    const unstarted = this.#schedule.drain()
    if (unstarted.length === 0) return
    this.#returning++
    const kept = await this.#handBack(unstarted)
    this.#returning--
    this.#unsettled -= unstarted.length - kept.length
    this.#schedule.putBack(kept)
    this.#pump()
  }

  /** Retries that wait in this process go back as they came. */
  async #returnHeld(): Promise<void> {
    const held = this.#holds.take(() => true)
    for (const context of held) this.#leaves(context)
    await this.#release(held)
  }

  async #release(contexts: readonly Context[]): Promise<void> {
    if (contexts.length === 0) return
    try {
      await this.#subscription?.release(contexts.map((context) => context.incoming))
    } catch (error) {
      this.logger.warn('handing back messages failed; they return when the subscription ends', {
        error: toError(error).message,
      })
    }
  }

  // --- Closing ---

  /** @throws CloseInHandlerError, OptionError, UnknownOptionError */
  async close(options?: CloseOptions): Promise<CloseReport> {
    const timeoutMs = closeTimeout(options)
    if (this.#running.size > 0 && calledFromHandler([this.marker])) throw closeInHandler()
    return this.end(timeoutMs)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  /** Closing without the question who asks. */
  end(timeoutMs: number): Promise<CloseReport> {
    this.#closing ??= this.#shutDown(timeoutMs)
    return this.#closing
  }

  async #shutDown(timeoutMs: number): Promise<CloseReport> {
    const failed = this.#state === 'failed'
    if (!failed) this.#state = 'closing'
    this.#stopping = true
    this.#tripped?.cancel()
    this.#deafen?.()
    // Lets the caller's own stack end: `#closing` must be set before anything comes back here.
    await undefined
    const deadline = this.clock.now() + timeoutMs
    const time = this.#limit(timeoutMs)
    await Promise.race([this.#starting.catch(() => {}), time.up])
    this.onClosing?.()
    await Promise.race([this.#quietly(this.#subscription?.stop()), time.up])
    this.#stopping = false
    await Promise.race([Promise.all([this.#returnUnstarted(), this.#returnHeld()]), time.up])
    await Promise.race([this.#running.empty(), time.up])
    time.cancel()
    const abandoned = this.#running.size
    for (const context of [...this.#running]) {
      context.revoke('closing ran out of time; the message goes to another consumer')
    }
    this.#ended.abort()
    this.#heartbeat?.cancel()
    this.#circuits?.stop()
    const leave = this.#limit(Math.max(leaveMs, deadline - this.clock.now()))
    await Promise.race([this.#quietly(this.#subscription?.close()), leave.up])
    leave.cancel()
    if (!failed) this.#state = 'closed'
    if (abandoned > 0) {
      const { topic, group } = this
      const what = `closing gave up on ${abandoned} running handlers after ${timeoutMs} ms`
      this.logger.warn(`${what}; a handler or consume loop that awaits close() waits for itself`, {
        topic,
        group,
      })
    }
    this.deps.onEnd(this)
    this.#finish.resolve()
    return { drained: abandoned === 0, abandoned }
  }

  #limit(ms: number): { readonly up: Promise<void>; cancel(): void } {
    let timer: Timer | undefined
    const up = new Promise<void>((resolve) => {
      timer = this.clock.setTimer(resolve, ms)
    })
    return { up, cancel: () => timer?.cancel() }
  }

  async #quietly(step: Promise<void> | undefined): Promise<void> {
    try {
      await step
    } catch (error) {
      this.logger.warn(`closing the subscription of '${this.topic}': ${toError(error).message}`)
    }
  }
}
