import { randomUUID } from 'node:crypto'
import { type ConformanceTarget, memoryTarget } from '@longshore/conformance'
import {
  type Bus,
  connect,
  type Driver,
  type DriverModule,
  type DriverSubscription,
  type IncomingDelivery,
  type MemoryConnection,
  type MemoryOptions,
  memory,
  type Sink,
  type SubscriptionSpec,
} from './core.js'

/** A driver that is wrong on purpose, and what must notice it. */
export interface Mutant {
  readonly name: string
  /** Ids of the checks that must fail on it, each with what its failure must say. */
  readonly claims: Readonly<Record<string, RegExp>>
  readonly changes: Changes
  readonly options?: MemoryOptions
}

export interface Connection {
  readonly driver: Driver
  readonly native: MemoryConnection
  /** Runs at each loss of the connection. */
  onDown(callback: () => void): void
}

export interface Joined {
  readonly spec: SubscriptionSpec
  readonly connection: Connection
  readonly sink: Sink
  /** The honest subscription; deliveries are those of the honest driver. */
  readonly member: DriverSubscription
}

/** What is wrong, laid over the memory driver; whatever is left out is honest. */
export interface Changes {
  readonly driver?: (connection: Connection) => Partial<Driver>
  readonly spec?: (spec: SubscriptionSpec) => SubscriptionSpec
  /** What the core sees of a delivery; the honest one is what gets settled. */
  readonly delivery?: (delivery: IncomingDelivery) => IncomingDelivery
  /** Before the core gets them. */
  readonly sink?: (joined: Joined) => Partial<Sink>
  readonly subscription?: (joined: Joined) => Partial<DriverSubscription>
  /** For wrongs that are not the driver's. */
  readonly bus?: (bus: Bus) => Partial<Bus>
}

/** How a message is sent that nothing special was asked for. */
export const plain = { delayMs: 0, priority: undefined, ttlMs: undefined, route: undefined }

/** The target with some of its members replaced; the others stay bound to it. */
export function overlay<T extends object>(target: T, changes: Partial<T>): T {
  return new Proxy(target, {
    get(_, name) {
      if (Object.hasOwn(changes, name)) return changes[name as keyof T]
      const value = Reflect.get(target, name, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

/** A target of its own broker whose driver is wrong so. */
export function wrongTarget({ changes, options: own = {} }: Mutant): ConformanceTarget {
  const name = randomUUID()
  const driver = wrongDriver(changes)
  const target = memoryTarget(name, {}, async (options) => {
    const bus = await connect({ driver, options: { ...own, name }, ...options })
    return changes.bus ? overlay(bus, changes.bus(bus)) : bus
  })
  return { ...target, driver: 'mutant' }
}

function wrongDriver(changes: Changes): DriverModule<MemoryOptions> {
  return {
    ...memory,
    async connect(config) {
      const downs: (() => void)[] = []
      const honest = await memory.connect({
        ...config,
        onStatus(status) {
          if (status.state === 'down') for (const callback of downs) callback()
          config.onStatus(status)
        },
      })
      const connection: Connection = {
        driver: honest,
        native: honest.native() as MemoryConnection,
        onDown: (callback) => downs.push(callback),
      }
      const wrong = overlay(honest, changes.driver?.(connection) ?? {})
      return overlay(wrong, {
        subscribe: (spec, sink) => join(changes, connection, wrong, spec, sink),
      })
    },
  }
}

async function join(
  changes: Changes,
  connection: Connection,
  driver: Driver,
  given: SubscriptionSpec,
  core: Sink,
): Promise<DriverSubscription> {
  const spec = changes.spec?.(given) ?? given
  const shown = new WeakMap<IncomingDelivery, IncomingDelivery>()
  const honest = new WeakMap<IncomingDelivery, IncomingDelivery>()
  const show = (delivery: IncomingDelivery) => {
    let seen = shown.get(delivery)
    if (seen === undefined) {
      seen = changes.delivery?.(delivery) ?? delivery
      shown.set(delivery, seen)
      honest.set(seen, delivery)
    }
    return seen
  }
  const real = (delivery: IncomingDelivery) => honest.get(delivery) ?? delivery
  const toCore: Sink = {
    deliver: (batch) => core.deliver(batch.map(show)),
    revoke: (deliveries, reason) => core.revoke(deliveries.map(show), reason),
    fail: (error) => core.fail(error),
  }
  // The sink is needed before the member is there; it is first used when the honest driver delivers.
  let sink = toCore
  let ready = false
  const waiting: (() => void)[] = []
  const now = (call: () => void) => {
    if (ready) call()
    else waiting.push(call)
  }
  const member = await driver.subscribe(spec, {
    deliver: (batch) => now(() => sink.deliver(batch)),
    revoke: (deliveries, reason) => now(() => sink.revoke(deliveries, reason)),
    fail: (error) => now(() => sink.fail(error)),
  })
  const joined: Joined = { spec, connection, sink: toCore, member }
  sink = overlay(toCore, changes.sink?.(joined) ?? {})
  ready = true
  for (const call of waiting.splice(0)) call()
  const wrong = overlay(member, changes.subscription?.(joined) ?? {})
  return overlay(wrong, {
    ack: (delivery) => wrong.ack(real(delivery)),
    retry: (delivery, request) => wrong.retry(real(delivery), request),
    deadLetter: (delivery, failure) => wrong.deadLetter(real(delivery), failure),
    release: (deliveries) => wrong.release(deliveries.map(real)),
  })
}
