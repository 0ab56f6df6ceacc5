import type { Bus, BusOptions } from '@longshore/core'

/** Undoes what a hook broke. */
export type Repair = () => void | Promise<void>

/** A message as the broker's own client sees it. What the broker has no place for stays undefined. */
export interface NativeMessage {
  readonly body: Uint8Array
  readonly headers: Readonly<Record<string, string>>
  readonly id?: string
  readonly key?: string
  readonly contentType?: string
}

export interface NativeReader {
  /** The next message; waits for it. */
  next(): Promise<NativeMessage>
  close(): Promise<void>
}

/** A broker that listens on TCP, so that the kit can put its proxy in between. */
export interface ProxyHook {
  readonly host: string
  readonly port: number
  /** Connects to the broker as if it listened there. */
  connect(host: string, port: number, options?: BusOptions): Promise<Bus>
}

/**
 * What the kit may do to the broker beyond the public API. All are optional: a check that needs an absent one is
 * skipped, and the report names the hook.
 */
export interface TargetHooks {
  /** Stops the broker and starts it again; resolves when it answers. */
  restart?(): Promise<void>
  stopBroker?(): Promise<void>
  startBroker?(): Promise<void>
  /** Cuts every connection as a broken network would; the broker stays up and takes new connections. */
  severConnections?(): Promise<void>
  /** The connection vanishes as if its process had died. Only for brokers within the process. */
  crash?(bus: Bus): Promise<void>
  /**
   * URL or path of a module whose default export is this target (or a function that returns it), in JavaScript that
   * `node` runs as it is. The kit imports it in child processes that it kills and stops.
   */
  readonly program?: string | URL
  readonly proxy?: ProxyHook
  /** Publishes with the broker's own client, without any Longshore metadata. */
  publishNative?(
    topic: string,
    message: {
      readonly body: Uint8Array
      readonly headers?: Readonly<Record<string, string>>
      readonly key?: string
    },
  ): Promise<void>
  /** Reads what is published to the topic from now on with the broker's own client. */
  readNative?(topic: string): Promise<NativeReader>
  /** Deletes the topic, and the group on it, behind the back of all who use them. */
  deleteTopology?(topic: string, group: string): Promise<void>
  /** Makes storing dead letters of this group fail until it is repaired. */
  breakDeadLetters?(topic: string, group: string): Promise<Repair>
  /** Makes scheduling retries of this group fail until it is repaired; others' may fail with them. */
  breakRetries?(topic: string, group: string): Promise<Repair>
  /** The broker refuses messages to this topic. */
  rejectPublishes?(topic: string): Promise<Repair>
  /** Messages to this topic get lost on their way to the broker, and so no confirmation comes. */
  losePublishes?(topic: string): Promise<Repair>
  /** The broker stores messages to this topic, but its confirmations get lost. */
  loseConfirms?(topic: string): Promise<Repair>
  /** Connects with a password that the broker does not know. */
  connectWithBadCredentials?(options?: BusOptions): Promise<Bus>
}

export type HookName = keyof TargetHooks

export interface Tolerances {
  /** Multiplies the deadline of everything that the checks wait for. Default 1. */
  readonly slowness?: number
  /** How late a delayed delivery may be, whatever its delay. Default 250 ms. */
  readonly lateMs?: number
  /** How much the heap may grow while a backlog of 10,000 messages is consumed. Default 48 MiB. */
  readonly heapBytes?: number
  /** Within how long a half-open connection must be noticed. Default 30 s. */
  readonly heartbeatMs?: number
  /** Largest body that the checks try, however much the driver declares. Default 64 MiB. */
  readonly largestBody?: number
}

/** What the kit needs to know of a driver: how to connect to its broker, and what it may break there. */
export interface ConformanceTarget {
  /** The driver's name. */
  readonly driver: string
  /** The driver's version, for the report. */
  readonly version?: string
  /** A new connection, each time to the same broker. The options must reach `connect` of `@longshore/core`. */
  connect(options?: BusOptions): Promise<Bus>
  readonly hooks?: TargetHooks
  /** Ends what the target itself holds (a proxy, a name space at the broker) when all checks are through. */
  close?(): Promise<void>
  readonly tolerances?: Tolerances
  /** Shown in the capability matrix. */
  readonly notes?: readonly string[]
}
