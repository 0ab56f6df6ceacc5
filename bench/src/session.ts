/** What a scenario measures through: Longshore over some driver, or the bare client of its broker. */

/** Text and binary are 256 bytes; an order is a small object. */
export interface Payloads {
  readonly text: string
  readonly binary: Uint8Array
  readonly json: Order
}

export interface Order {
  readonly seq: number
  readonly customer: string
  readonly total: number
}

export type Kind = keyof Payloads

export interface Settings<K extends Kind = Kind> {
  readonly kind: K
  readonly concurrency: number
  /** `key`: payloads are published with the key `k<n>`, and handled one after another for each key. */
  readonly order: 'none' | 'key'
}

/** One member of a batch. */
export interface Entry<T> {
  readonly payload: T
  readonly key?: string
}

/** A topic of its own with one consumer, alive for one measurement. */
export interface Session<T> {
  /** Resolves once messages can flow. Each message is settled after its handler. */
  consume(handler: (payload: T) => Promise<void>): Promise<void>
  /** Resolves when the message is confirmed. */
  publish(payload: T, key?: string): Promise<unknown>
  /** Resolves when all are confirmed; rejects if one is not. */
  publishBatch(entries: readonly Entry<T>[]): Promise<unknown>
  /** Stops handing messages to the handler. */
  pause(): void
  resume(): void
  /** Ends the session; rejects if a message was left unsettled. */
  close(): Promise<void>
}

export interface Target {
  readonly name: string
  open<K extends Kind>(settings: Settings<K>): Promise<Session<Payloads[K]>>
}

/** The raw client of a driver is a target like any other: `raw/<driver>.ts` exports one. */
export type RawClient = Target
