/**
 * The driver contract: everything that Longshore asks of a broker, on one page. A driver owns its broker: reconnecting,
 * topology, confirmed publishing, delivering, and the durable execution of `ack`, `retry` and `deadLetter`. It holds no policy
 * and no other retry loop. The core wraps raw errors once.
 */
import type { Admin } from './admin.js'
import type { Capabilities } from './capabilities.js'
import type { CircuitStore } from './circuits.js'
import type { Clock } from './clock.js'
import type { DeadLetterAccess, Failure } from './dead-letter.js'
import type { Logger } from './logger.js'
import type { WireMessage } from './message.js'

/** What a driver package exports as `driver`. */
export interface DriverModule<Options extends object = object> {
  readonly name: string
  /** URL schemes without the colon. */
  readonly schemes: readonly string[]
  /** Names of all options that `connect` understands; any other is refused before `connect` is called. */
  readonly options: readonly string[]
  /** Resolves when the broker answers; rejects with a typed error at `connectTimeoutMs`. */
  connect(config: DriverConfig<Options>): Promise<Driver>
}

export interface DriverConfig<Options extends object = object> {
  readonly url: string | undefined
  readonly options: Options
  readonly connectTimeoutMs: number
  /** Whether topics, groups and what they need may be created on first use. */
  readonly autoCreate: boolean
  readonly clock: Clock
  readonly logger: Logger
  /** To be called on each change of the connection's state. */
  onStatus(status: DriverStatus): void
}

export interface DriverStatus {
  /** `blocked`: connected, but the broker takes no messages for now (an alarm, a full disk). */
  readonly state: 'up' | 'blocked' | 'down'
  readonly detail?: string
}

export interface Driver {
  readonly name: string
  /** Fixed for the life of the connection; may depend on the server found. */
  readonly capabilities: Capabilities
  /** As the server calls itself, for instance `RabbitMQ 3.10.8`. */
  readonly server: string
  /** Sends the messages in order and calls `settle(index, …)` once for each, when the broker has confirmed or refused it.
   * Must not throw. The core bounds how many are under way at once, and repeats `unknown` and `unsent` ones under the same id. */
  publish(batch: readonly OutgoingMessage[], settle: PublishSettle): void
  /** Joins a group; creates topic and group if `autoCreate`. Resolves once deliveries can flow. */
  subscribe(spec: SubscriptionSpec, sink: Sink): Promise<DriverSubscription>
  /** Ends the connection within `timeoutMs`; subscriptions were closed before. Idempotent. */
  close(timeoutMs: number): Promise<void>
  /** The client underneath: the escape hatch. */
  native(): unknown

  // Optional abilities; the capability of the same name says whether they are there.
  readonly deadLetters?: DeadLetterAccess
  readonly circuits?: CircuitStore
  readonly admin?: Admin
  /** Takes a delayed message back; false if it is unknown or was delivered. Capability `cancelDelay`. */
  cancelDelayed?(topic: string, id: string): Promise<boolean>
}

export interface OutgoingMessage {
  readonly message: WireMessage
  /** Milliseconds from now, by the broker's clock where it has one; 0 = at once. */
  readonly delayMs: number
  /** 0 (lowest) to `capabilities.priority` − 1. */
  readonly priority: number | undefined
  /** Milliseconds after which an undelivered message is dropped. */
  readonly ttlMs: number | undefined
  /** What groups with `routes` choose by; not part of the message. */
  readonly route: string | undefined
}

/** `rejected`: refused, repeating is useless. `unsent`: surely not taken. `unknown`: may have been. None: durably confirmed. */
export type PublishSettle = (index: number, failure?: PublishFailure) => void
export interface PublishFailure {
  readonly outcome: 'rejected' | 'unsent' | 'unknown'
  readonly error: unknown
}

export interface SubscriptionSpec {
  readonly topic: string
  readonly group: string
  /** `key`: all unsettled deliveries of a key are with one member at a time, pushed in order. */
  readonly order: 'none' | 'key'
  /** At most so many deliveries unsettled at once. */
  readonly window: number
  /** Where a group starts that does not exist yet. */
  readonly from: 'latest' | 'earliest' | Date
  /** A new group gets only what matches one of these (`routeMatcher`), from its topic; sorted. Undefined: everything. */
  readonly routes: readonly string[] | undefined
  /** After so long without `heartbeat` a delivery goes to another member (capability `lease`). */
  readonly leaseMs: number
}

/** One attempt to hand a message to a group. The driver may use a class of its own. */
export interface IncomingDelivery {
  readonly message: WireMessage
  /** From 1; one more for each `retry` before this. */
  readonly attempt: number
  /** From 1; how often the broker handed it over in this attempt, crashes included (capability `deliveryCount`). */
  readonly deliveries: number
  /** Epoch milliseconds of the first failure, as given to `retry`. */
  readonly firstFailedAt: number | undefined
}

/** Where a driver pushes to, at any time until `close` resolved. Its methods don't throw. */
export interface Sink {
  deliver(batch: readonly IncomingDelivery[]): void
  /** These are no longer this member's (lease lapsed, connection lost, rebalance): settling them returns false. */
  revoke(deliveries: readonly IncomingDelivery[], reason: string): void
  /** The subscription can't go on (permission revoked, topic gone without `autoCreate`). */
  fail(error: unknown): void
}

export interface RetryRequest {
  readonly delayMs: number
  /** The attempt that the next delivery is to carry. */
  readonly attempt: number
  readonly firstFailedAt: number
  /** With `order: 'key'`: no later message of the key may pass it (only where `orderedRetry` is `broker`). */
  readonly hold: boolean
}

/** Settling returns (or resolves to) true when the broker took it, false when the delivery is no longer this member's,
 * and throws when the durable step failed: then the delivery is still this member's, and the core tries again. */
export interface DriverSubscription {
  ack(delivery: IncomingDelivery): boolean | Promise<boolean>
  /** Durably schedules the next delivery, then lets go of this one. */
  retry(delivery: IncomingDelivery, request: RetryRequest): boolean | Promise<boolean>
  /** Durably stores the message, whole, with its failure, then lets go of it. */
  deadLetter(delivery: IncomingDelivery, failure: Failure): boolean | Promise<boolean>
  /** Hands back what was never started: no attempt is counted (a delivery may be), the order is kept. */
  release(deliveries: readonly IncomingDelivery[]): void | Promise<void>
  /** Renews the lease of all that this member holds. */
  heartbeat(): void
  pause(): void
  resume(): void
  /** Stops the intake: after it resolves nothing is delivered any more; settling still works. */
  stop(): Promise<void>
  /** Leaves the group; what is unsettled goes to the others. Idempotent. */
  close(): Promise<void>
}
