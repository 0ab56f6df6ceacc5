import type { Entry } from '../ledger.js'

/** What a member of a group does; plain data, so that it can be sent to another process. */
export interface MemberSpec {
  readonly topic: string
  readonly group: string
  readonly role: 'consume' | 'publish' | 'redrive'
  /** Subscribe options that are plain data. */
  readonly options?: {
    readonly concurrency?: number
    readonly prefetch?: number
    readonly order?: 'none' | 'key'
    readonly lease?: number
    readonly retry?: {
      readonly attempts?: number
      readonly base?: number
      readonly maxDeliveries?: number
    }
  }
  /**
   * What its handlers do: `ack` at once, `hold` the delivery until the process ends, wait `slow` ms, or kill the whole
   * process (`die`).
   */
  readonly behaviour?: 'ack' | 'hold' | 'die' | { readonly slow: number }
  /** For the role `publish`: numbers from 0, one after another, until it is killed or all are confirmed. */
  readonly publish?: { readonly producer: string; readonly key: string; readonly count: number }
}

/** One handler call, as a member tells of it. */
export interface Handling extends Entry {
  readonly id: string
  readonly attempt: number
  readonly deliveries: number
  /** When it began or was handled: milliseconds of a clock that all processes of the machine share. */
  readonly at: number
}

/** What a member tells. */
export type Report =
  | { readonly type: 'ready' }
  | { readonly type: 'started'; readonly handling: Handling }
  | { readonly type: 'handled'; readonly handling: Handling }
  | { readonly type: 'confirmed'; readonly entry: Entry }
  | { readonly type: 'redriven'; readonly count: number }
  | { readonly type: 'error'; readonly message: string }

export interface Member {
  readonly started: readonly Handling[]
  /** Handlers that returned; their acks may still be under way. */
  readonly handled: readonly Handling[]
  /** Confirmed by the broker, for the role `publish`. */
  readonly confirmed: readonly Entry[]
  /** Errors of the member, for the messages of failures. */
  readonly errors: readonly string[]
  /** It is dead: killed from outside, or by its own handler. */
  readonly dead: boolean
  /** SIGKILL, or what comes nearest. Resolves when it is dead. */
  kill(): Promise<void>
}
