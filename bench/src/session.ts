/** What a scenario measures through: Longshore over some driver, or the bare client of its broker. */

/** Text and binary have the size that a scenario wants; an order is a small object. */
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
  /** Unsettled messages at once in the client. Default: Longshore's, twice the concurrency. */
  readonly prefetch?: number
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
  pause(): void | Promise<void>
  resume(): void | Promise<void>
  /** Ends the session and deletes what it made in the broker; rejects if a message was left unsettled. */
  close(): Promise<void>
}

export interface Target {
  readonly name: string
  open<K extends Kind>(settings: Settings<K>): Promise<Session<Payloads[K]>>
}

/** The raw client of a driver is a target like any other: `raw/<driver>.ts` exports one, or makes one for a URL. */
export interface RawClient extends Target {
  /** For the report: what both sides use in the broker. */
  readonly setup?: Readonly<Record<string, string>>
}

/**
 * Opens a session for some work and closes it, whatever happens: a broker must not keep what a failed measurement left in it.
 */
export async function withSession<K extends Kind, R>(
  target: Target,
  settings: Settings<K>,
  work: (session: Session<Payloads[K]>) => Promise<R>,
): Promise<R> {
  const session = await target.open(settings)
  let result: R
  try {
    result = await work(session)
  } catch (error) {
    await session.close().catch(() => {})
    throw error
  }
  await session.close()
  return result
}
