/**
 * What a driver can do on the server that it found. What is absent here raises an `UnsupportedError` when it is asked
 * for, before the first message is sent; nothing is silently ignored.
 */
export interface Capabilities {
  /** Several members share the messages of a group; each group gets every message. */
  readonly groups: boolean
  /** `key`: per-key order across members; `single`: only with one member; `none`. */
  readonly order: 'none' | 'single' | 'key'
  /** Confirmed messages, groups, delays and dead letters survive a restart of the broker. */
  readonly durable: boolean
  /** A new group can begin in the past (`from: 'earliest'` or a Date). */
  readonly replay: boolean
  /** Who holds a retry that waits: the broker (it survives a crash of the consumer, attempt count included) or the consumer's process. */
  readonly retry: 'broker' | 'process'
  /** The same for a retry that holds its key back (`order: 'key'` with `block` or `park`). */
  readonly orderedRetry: 'broker' | 'process'
  /** Delayed publishing; the longest delay in milliseconds, 0 = none. */
  readonly delay: number
  readonly cancelDelay: boolean
  /** The broker counts deliveries, so that a message that kills its consumers is found out. */
  readonly deliveryCount: boolean
  /** Deliveries are leased: unsettled past the lease they go to another member. */
  readonly lease: boolean
  /** Largest body in bytes. */
  readonly maxBytes: number
  readonly headerCharset: HeaderCharset
  /** A batch of messages costs less than so many single ones. */
  readonly batch: boolean
  /** Topics and groups are created on first use (unless the user turned it off). */
  readonly autoCreate: boolean
  /** Number of priority levels, 0 = none. */
  readonly priority: number
  readonly ttl: boolean
  /** Groups can choose messages by their route: `exact` only the very route, `wildcard` with `*` and `#`, too. */
  readonly routing: 'none' | 'exact' | 'wildcard'
  /** The broker drops a repeated message id within a window. */
  readonly dedupe: boolean
  /** Dead letters can be listed, redriven and discarded. */
  readonly deadLetters: boolean
  /** The per-key circuits of `park` are kept by the driver; else a `CircuitStore` must be given. */
  readonly circuits: boolean
  /** Topics and groups can be created, deleted and counted. */
  readonly admin: boolean
  readonly transactions: boolean
  readonly requestReply: boolean
}

/**
 * Which characters header names and values may have. `token`: `A–Z a–z 0–9 . _ -`; `printable`: no control characters
 * (no CR, LF or NUL); `unicode`: any well-formed string.
 */
export interface HeaderCharset {
  readonly names: 'token' | 'printable' | 'unicode'
  readonly values: 'printable' | 'unicode'
}
