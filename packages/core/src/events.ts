import { type Channel, channel } from 'node:diagnostics_channel'
import type { DeadLetterReason } from './dead-letter.js'
import type { DriverStatus } from './driver.js'
import type { WireMessage } from './message.js'

interface About {
  readonly driver: string
  readonly message: WireMessage
}

interface AboutDelivery extends About {
  readonly topic: string
  readonly group: string
  readonly attempt: number
}

/**
 * What a bus tells: to `bus.on(name)` and, for all buses of the process, to the `node:diagnostics_channel` of the name
 * `longshore:` + name. Durations are milliseconds.
 */
export interface BusEvents {
  /** The broker confirmed a message. */
  published: About & { readonly durationMs: number }
  /** A publish ended without confirmation. */
  'publish-failed': About & { readonly error: Error }
  /** An outgoing message was dropped by the buffer's policy. */
  dropped: About & { readonly policy: 'drop-oldest' | 'drop-newest' }
  /** A handler is about to run. */
  started: AboutDelivery
  /** Its chain succeeded and it was acked. `durationMs`: from start to ack. */
  handled: AboutDelivery & { readonly durationMs: number }
  /** An attempt failed. */
  failed: AboutDelivery & { readonly error: Error }
  retried: AboutDelivery & { readonly error: Error; readonly delayMs: number }
  'dead-lettered': AboutDelivery & { readonly error: Error; readonly reason: DeadLetterReason }
  /** A failed message was dropped because the dead-letter policy says `keep: false`. */
  discarded: AboutDelivery & { readonly error: Error; readonly reason: DeadLetterReason }
  /** Handed back unhandled, at close or on pause. */
  returned: {
    readonly driver: string
    readonly topic: string
    readonly group: string
    readonly count: number
  }
  /** Taken away from this consumer. */
  revoked: AboutDelivery & { readonly reason: string }
  /** Settling failed and will be tried again. */
  'settle-failed': AboutDelivery & { readonly error: Error }
  circuit: {
    readonly driver: string
    readonly topic: string
    readonly group: string
    readonly key: string
    readonly state: 'open' | 'half-open' | 'closed'
  }
  'kill-switch': {
    readonly driver: string
    readonly topic: string
    readonly group: string
    readonly state: 'tripped' | 'resumed'
    readonly failureRate: number
  }
  redriven: {
    readonly driver: string
    readonly topic: string
    readonly group: string
    readonly count: number
  }
  connection: DriverStatus & { readonly driver: string }
  closing: { readonly driver: string }
  closed: { readonly driver: string; readonly drained: boolean; readonly abandoned: number }
}

const names = [
  'published',
  'publish-failed',
  'dropped',
  'started',
  'handled',
  'failed',
  'retried',
  'dead-lettered',
  'discarded',
  'returned',
  'revoked',
  'settle-failed',
  'circuit',
  'kill-switch',
  'redriven',
  'connection',
  'closing',
  'closed',
] as const satisfies readonly (keyof BusEvents)[]

/** One kind of event. Look at `active` before building the event, so that it costs nothing when nobody listens. */
export class EventSource<T> {
  #listeners: readonly ((event: T) => void)[] = []
  readonly #channel: Channel

  constructor(name: string) {
    this.#channel = channel(`longshore:${name}`)
  }

  get active(): boolean {
    return this.#listeners.length > 0 || this.#channel.hasSubscribers
  }

  emit(event: T): void {
    this.#channel.publish(event)
    for (const listener of this.#listeners) listener(event)
  }

  on(listener: (event: T) => void): () => void {
    // A wrapper of its own, so that one function registered twice is removed once.
    const entry = (event: T) => {
      try {
        listener(event)
      } catch (error) {
        // As diagnostics_channel does: a listener's error is the process's, never the message's.
        process.nextTick(() => {
          throw error
        })
      }
    }
    this.#listeners = [...this.#listeners, entry]
    return () => {
      this.#listeners = this.#listeners.filter((other) => other !== entry)
    }
  }
}

export type EventSources = { readonly [Name in keyof BusEvents]: EventSource<BusEvents[Name]> }

export function createEvents(): EventSources {
  return Object.fromEntries(
    names.map((name) => [name, new EventSource(name)]),
  ) as unknown as EventSources
}
