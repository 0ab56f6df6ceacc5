/** The public surface: what users call, and what they pass. */
import type { Admin } from './admin.js'
import type { Capabilities } from './capabilities.js'
import type { Circuit, CircuitStore } from './circuits.js'
import type { DeadLetterReason, Failure } from './dead-letter.js'
import type { DriverStatus } from './driver.js'
import type { Duration } from './duration.js'
import type { LongshoreError } from './errors.js'
import type { BusEvents } from './events.js'
import type { Headers, Message } from './message.js'
import type { TopicLike, TopicRef } from './topic.js'

type MaybePromise<T> = T | Promise<T>

// --- Publishing ------------------------------------------------------------------------------------------------------

export interface MessageOptions {
  /** Default: a new UUID v7. Give your own to make repeats recognisable. */
  readonly id?: string
  /** Default: what the topic's `key` function says. */
  readonly key?: string
  /** Names that begin with `longshore-` are reserved. */
  readonly headers?: Headers
  /** Deliver no earlier than after this. Not together with `at`. */
  readonly delay?: Duration
  /** Deliver no earlier than at this time, by the publisher's clock. */
  readonly at?: Date
  /** 0 (lowest) to `capabilities.priority` − 1. Of no effect in groups with `order: 'key'`, whose order comes first. */
  readonly priority?: number
  /** Drop the message if it was not delivered by then. */
  readonly ttl?: Duration
  /**
   * What groups with `routes` choose by: words of `A–Z a–z 0–9 _ -` joined by `.`, at most 100 characters. Handlers don't see
   * it: what they need to know belongs in the payload or the headers. Capability `routing`.
   */
  readonly route?: string
  readonly correlationId?: string
  readonly causationId?: string
}

export interface PublishOptions extends MessageOptions {
  /** How long to try until the outcome counts as unknown. Default: the bus's `publish.deadline` (30 s). */
  readonly deadline?: Duration
  /** Aborted before the message was handed to the driver: nothing is sent. Later: the outcome is unknown. */
  readonly signal?: AbortSignal
}

export interface Published {
  readonly id: string
}

export interface BatchEntry<In> extends MessageOptions {
  readonly payload: In
}

/** What became of one member of a batch. `failed`: surely not stored. `unknown`: may or may not be stored. */
export type PublishOutcome =
  | { readonly status: 'confirmed'; readonly id: string }
  | { readonly status: 'failed' | 'unknown'; readonly id: string; readonly error: LongshoreError }

/** What publish middleware sees. `headers` may be added to until the message is built. */
export interface PublishContext {
  readonly topic: string
  readonly id: string
  readonly key: string | undefined
  readonly payload: unknown
  readonly headers: Record<string, string>
  readonly delayMs: number
  readonly route: string | undefined
  readonly correlationId: string | undefined
  readonly causationId: string | undefined
}

export interface Next<Context> {
  (context: Context): MaybePromise<void>
  /** Runs the rest of the chain once more in the same attempt, on purpose; `next` itself may be called only once. */
  again(context: Context): MaybePromise<void>
}

/**
 * A function around each publish. Call `next` once; it resolves when the broker confirmed. Not calling it fails the publish:
 * throw to say why.
 */
export type PublishMiddleware = (
  context: PublishContext,
  next: Next<PublishContext>,
) => MaybePromise<void>

export type Publish = <In, Out = In>(
  topic: TopicLike<In, Out>,
  payload: NoInfer<In>,
  options?: PublishOptions,
) => Promise<Published>

/** What happens when `max` messages or `maxBytes` bytes of bodies wait for confirmation. */
export interface BufferOptions {
  /** Default 10,000 messages. */
  readonly max?: number
  /** Default 64 MiB. */
  readonly maxBytes?: number
  /**
   * `block` (default): publish waits for room; await it, as each waiting publisher keeps its message in memory. `drop-newest`: SaturatedError. `drop-oldest`: the oldest unsent gets a DroppedError.
   */
  readonly policy?: 'block' | 'drop-oldest' | 'drop-newest'
}

// --- Consuming -------------------------------------------------------------------------------------------------------

/** One delivery in a handler's or middleware's hands. */
export interface ConsumeContext<T = unknown> {
  readonly message: Message<T>
  readonly payload: T
  readonly topic: string
  readonly group: string
  /** From 1. */
  readonly attempt: number
  /** How often the broker delivered this attempt, from 1; above 1 after a crash, a lapsed lease and, on some brokers, a reconnect. */
  readonly deliveries: number
  /** Aborts on timeout, when the delivery is taken away, and when closing runs out of time. */
  readonly signal: AbortSignal
  /** True once it was acked, retried, dead-lettered or handed back. */
  readonly settled: boolean
  /** How; undefined while it is open. */
  readonly settledBy: 'ack' | 'retry' | 'dead-letter' | 'hand-back' | undefined
  /** A place for middleware to leave things for each other and for the handler. */
  readonly state: Map<unknown, unknown>
  /** Publishes with this message's correlation (its id, if it has none), and it as the cause. */
  readonly publish: Publish
  /** Settles now instead of when the handler returns. False if it was settled before or is no longer this consumer's. */
  ack(): Promise<boolean>
  /** A new delivery after `delay` (default: the retry policy's backoff). */
  retry(delay?: Duration, error?: unknown): Promise<boolean>
  deadLetter(error?: unknown, reason?: DeadLetterReason): Promise<boolean>
}

export type Handler<T> = (payload: T, context: ConsumeContext<T>) => MaybePromise<unknown>

/** A function around each attempt. Not calling `next` means that there is nothing to do: the message is acked.
 * Await or return what `next` gives. */
export type ConsumeMiddleware = (
  context: ConsumeContext,
  next: Next<ConsumeContext>,
) => MaybePromise<void>

export interface RetryPolicy {
  /** Attempts in all, the first included. Default 5; 1 = no retries. */
  readonly attempts?: number
  /** Delay before the second attempt. Default 1 s. */
  readonly base?: Duration
  /** Default 2. */
  readonly factor?: number
  /** Longest delay. Default 5 min, or `base` if that is longer. */
  readonly max?: Duration
  /** A share (0.1 = ±10 %, the default), or `full` for anything between 0 and the delay. Never passes `max`. */
  readonly jitter?: number | 'full'
  /** Repeats in the process, at once, within each attempt. Default 0. */
  readonly immediate?: number
  /** Deliveries of one attempt, crashes included, before it counts as a message that kills its consumers. Default 20. */
  readonly maxDeliveries?: number
  /** Whether this error is worth another attempt. Default: all but PermanentError, DecodeError, ValidationError. */
  readonly retryable?: (error: unknown) => boolean
}

export interface DeadLetterPolicy {
  /** Characters of the stack to keep. Default 4,000; 0 = none. Drivers that keep it in a header keep 8,000 at most. */
  readonly maxStack?: number
  /** Default true. False: failed messages are dropped after their last attempt; each drop is an event and a warning. */
  readonly keep?: boolean
}

export interface ParkPolicy {
  /**
   * After so long an open circuit lets one message through: success closes it, while the parked ones stay in the dead letters.
   * Redriven later, they come after it; only `circuits.close(key, { redrive: true })` keeps the order. Default: never.
   */
  readonly coolDown?: Duration
}

export interface KillSwitch {
  /** Share of failed attempts that trips it, 0 to 1. Default 0.5. */
  readonly failureRate?: number
  /** Attempts in the window before it may trip. Default 20. */
  readonly minimum?: number
  /** Default 10 s. */
  readonly window?: Duration
  /** How long the subscription pauses. Default 30 s. */
  readonly pause?: Duration
}

export interface ConsumeOptions {
  /** Members of one group share its messages; every group gets every message. */
  readonly group: string
  /** Handlers at once. Default 1. */
  readonly concurrency?: number
  /** `key`: messages of one key one after another, in order, across all members of the group. Default `none`. */
  readonly order?: 'none' | 'key'
  /** With `order: 'key'`, what happens behind a failing message. Default `block`. */
  readonly onKeyFailure?: 'block' | 'park' | 'skip'
  readonly park?: ParkPolicy
  /** Where a new group starts. Default `latest`. */
  readonly from?: 'latest' | 'earliest' | Date
  /**
   * The group gets only messages whose `route` matches one of these; `*` stands for one word, `#` for any number of words. Default:
   * all, also those without a route, which otherwise only `#` matches. Like `from` they belong to the group: all members ask for
   * the same, and a group that exists with others is a ConflictError where the driver can tell. Capability `routing`.
   */
  readonly routes?: readonly string[]
  /** A policy, or a middleware in its place. */
  readonly retry?: RetryPolicy | ConsumeMiddleware
  /** A policy, or a middleware in its place. */
  readonly deadLetter?: DeadLetterPolicy | ConsumeMiddleware
  readonly killSwitch?: KillSwitch | boolean
  /** Inside the bus's own consume middleware, in the order given. */
  readonly middleware?: readonly ConsumeMiddleware[]
  /** Unsettled deliveries at once. Default: twice the concurrency; with `order: 'key'` at least 64. */
  readonly prefetch?: number
  /** How long the broker waits for a sign of life. Default 30 s; renewed every third of it while this process lives. */
  readonly lease?: Duration
  /** Only where the driver has none of its own (capability `circuits`). */
  readonly circuits?: CircuitStore
  /** Aborting closes the subscription. */
  readonly signal?: AbortSignal
}

export interface SubscribeOptions extends ConsumeOptions {
  /** Longest time in the handler (of the whole batch, for batches). Default: none. */
  readonly timeout?: Duration
}

export interface SubscribeBatchOptions extends SubscribeOptions {
  /** Messages in a batch at most. Default 100. With `order: 'key'` a batch has at most one message of each key. */
  readonly batchSize?: number
  /** Longest wait for a batch to fill, from its first message. Default 100 ms. */
  readonly batchWait?: Duration
}

export interface BatchContext<T = unknown> {
  readonly messages: readonly Message<T>[]
  readonly topic: string
  readonly group: string
  readonly signal: AbortSignal
  readonly publish: Publish
  /** This message failed; the others are acked when the handler returns. Throwing instead fails all that were not marked. */
  fail(index: number, error: unknown): void
}

export type BatchHandler<T> = (
  payloads: readonly T[],
  context: BatchContext<T>,
) => MaybePromise<unknown>

export interface CloseOptions {
  /** How long running handlers may take to finish. Default 30 s. */
  readonly timeout?: Duration
}

export interface CloseReport {
  /** False if handlers were still running at the timeout; their messages go to another consumer. */
  readonly drained: boolean
  /** How many those were. */
  readonly abandoned: number
}

export type SubscriptionState = 'running' | 'paused' | 'tripped' | 'closing' | 'closed' | 'failed'

export interface Subscription extends AsyncDisposable {
  readonly topic: string
  readonly group: string
  readonly state: SubscriptionState
  /** Handlers running now. */
  readonly running: number
  /** Stops handing messages to handlers; what is unstarted stays in the broker. */
  pause(): void
  resume(): void
  /** Resolves when it ended: by close, by its signal; rejects if it failed for good. */
  readonly done: Promise<void>
  close(options?: CloseOptions): Promise<CloseReport>
}

/**
 * A delivery of `bus.consume`, settled by hand: at most `concurrency` (default 1) are unsettled, so a loop that doesn't settle gets
 * no further. Closing from inside the loop: break, or settle first, as `bus.close()` waits for what is in hands. Unsettled ones go back when the loop ends; one whose signal has aborted is
 * over when the loop asks for the next.
 */
export interface Delivery<T = unknown> extends ConsumeContext<T> {
  /** Applies the failure policy as if a handler had thrown this. */
  fail(error: unknown): Promise<boolean>
}

export interface Consumption<T> extends AsyncIterable<Delivery<T>>, AsyncDisposable {
  close(options?: CloseOptions): Promise<CloseReport>
}

// --- Dead letters, circuits, health ----------------------------------------------------------------------------------

export interface DeadLetter {
  readonly id: string
  readonly key: string | undefined
  readonly body: Uint8Array
  readonly headers: Headers
  readonly contentType: string
  readonly timestamp: number
  readonly failure: Failure
}

/** Which dead letters; all conditions must hold. */
export interface DeadLetterFilter {
  readonly id?: string
  readonly ids?: Iterable<string>
  readonly key?: string
  readonly reason?: DeadLetterReason
  readonly where?: (letter: DeadLetter) => boolean
  /** At most so many, oldest first. */
  readonly limit?: number
  readonly signal?: AbortSignal
}

/** The dead letters of one group of one topic, oldest first. */
export interface DeadLetters {
  list(filter?: DeadLetterFilter): AsyncIterable<DeadLetter>
  get(id: string): Promise<DeadLetter | undefined>
  count(filter?: DeadLetterFilter): Promise<number>
  /** Sends them back to this group alone, in order, as attempt 1 with their ids. Safe to repeat. Resolves to their number. */
  redrive(filter?: DeadLetterFilter): Promise<number>
  /** Deletes them for good. An empty filter is refused: say `{ where: () => true }` to mean all. */
  discard(filter: DeadLetterFilter): Promise<number>
}

/** The open per-key circuits of one group of one topic. */
export interface Circuits {
  list(): Promise<readonly Circuit[]>
  /**
   * Closes a key's circuit: its messages flow again. `redrive` also sends its parked ones back, in order; they come before what
   * waits in the queue where the driver can do both in one step (memory, Postgres), else behind it.
   */
  close(key: string, options?: { readonly redrive?: boolean }): Promise<boolean>
}

export interface Health {
  /** `degraded`: connected, but blocked, saturated, or a subscription is tripped, paused or failed. */
  readonly status: 'up' | 'degraded' | 'down'
  readonly driver: string
  readonly server: string
  readonly connection: DriverStatus
  readonly outgoing: {
    /** Messages (and bytes of their bodies) that were accepted and not confirmed yet. */
    readonly messages: number
    readonly bytes: number
    /** Publishers that wait for room (policy `block`). */
    readonly blocked: number
    readonly saturated: boolean
  }
  readonly subscriptions: readonly {
    readonly topic: string
    readonly group: string
    readonly state: SubscriptionState
    readonly running: number
    readonly openCircuits: number
  }[]
}

// --- The bus ---------------------------------------------------------------------------------------------------------

export interface Bus extends AsyncDisposable {
  readonly driver: string
  readonly server: string
  readonly capabilities: Capabilities
  /** Topics and groups: create, delete, count. UnsupportedError where the driver can't. */
  readonly admin: Admin

  /** Resolves when the broker has confirmed the message. */
  publish<In, Out = In>(
    topic: TopicLike<In, Out>,
    payload: NoInfer<In>,
    options?: PublishOptions,
  ): Promise<Published>
  /** Publishes all, waits for all, and tells what became of each, in order. Rejects only for what concerns the whole batch. */
  publishBatch<In, Out = In>(
    topic: TopicLike<In, Out>,
    entries: readonly BatchEntry<NoInfer<In>>[],
    options?: Pick<PublishOptions, 'deadline' | 'signal'>,
  ): Promise<PublishOutcome[]>
  /** Takes a delayed message back; false if it was delivered already. UnsupportedError where the broker can't. */
  cancelDelayed(topic: TopicRef, id: string): Promise<boolean>

  subscribe<In, Out = In>(
    topic: TopicLike<In, Out>,
    options: SubscribeOptions,
    handler: Handler<NoInfer<Out>>,
  ): Promise<Subscription>
  subscribeBatch<In, Out = In>(
    topic: TopicLike<In, Out>,
    options: SubscribeBatchOptions,
    handler: BatchHandler<NoInfer<Out>>,
  ): Promise<Subscription>
  consume<In, Out = In>(topic: TopicLike<In, Out>, options: ConsumeOptions): Consumption<Out>

  deadLetters(topic: TopicRef, group: string): DeadLetters
  circuits(topic: TopicRef, group: string): Circuits
  health(): Health
  /** Calls the listener for each such event of this bus; returns how to stop. */
  on<Name extends keyof BusEvents>(
    event: Name,
    listener: (event: BusEvents[Name]) => void,
  ): () => void
  /** The client underneath. */
  native(): unknown
  /** Stops all subscriptions, lets handlers finish, sends what is buffered, disconnects. Idempotent. */
  close(options?: CloseOptions): Promise<CloseReport>
}
