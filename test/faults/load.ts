import type { Entry, Ledger } from '@longshore/conformance'

/** The stable code of an error, or what it is instead. */
export function codeOf(error: unknown): string {
  return String((error as { code?: unknown }).code ?? error)
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

export interface LoadOptions {
  /** Publishers beside each other, each with a key of its own and one message under way. */
  readonly lanes: number
  /** Between two messages of a lane. Default 1. */
  readonly pauseMs?: number
  /** Lanes that share a key, so that there are fewer keys. Default 1. */
  readonly lanesPerKey?: number
}

/** Publishers that number their messages, and tell the ledger what they sent and what was confirmed. */
export class Load {
  /** Codes of what ended neither confirmed nor unknown. */
  readonly failed: string[] = []
  unknown = 0
  /** Messages that are being published now. */
  underway = 0
  #running = true
  readonly #lanes: Promise<unknown>

  constructor(
    private readonly ledger: Ledger,
    private readonly publish: (entry: Entry, lane: number) => Promise<unknown>,
    private readonly options: LoadOptions,
  ) {
    this.#lanes = Promise.all(Array.from({ length: options.lanes }, (_, lane) => this.#run(lane)))
  }

  async #run(lane: number): Promise<void> {
    const { pauseMs = 1, lanesPerKey = 1 } = this.options
    const key = `k${Math.floor(lane / lanesPerKey)}`
    for (let n = 0; this.#running; n++) {
      await this.#publishOne({ producer: `p${lane}`, key, n }, lane)
      await pause(pauseMs)
    }
  }

  async #publishOne(entry: Entry, lane: number): Promise<void> {
    this.ledger.publish(entry)
    this.underway++
    try {
      await this.publish(entry, lane)
      this.ledger.confirm(entry)
    } catch (error) {
      const code = codeOf(error)
      if (code === 'LONGSHORE_OUTCOME_UNKNOWN') this.unknown++
      else this.failed.push(code)
    } finally {
      this.underway--
    }
  }

  /** Resolves when the last message of each lane has ended. */
  async stop(): Promise<void> {
    this.#running = false
    await this.#lanes
  }
}
