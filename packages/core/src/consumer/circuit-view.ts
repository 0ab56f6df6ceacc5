import type { CircuitStore } from '../circuits.js'
import type { Clock } from '../clock.js'

/** What one consumer knows of its group's circuits: a copy of the store, kept up to date. */
export class CircuitView {
  /** Key to the time, by this process's clock, at which it opened. */
  readonly #open = new Map<string, number>()
  #stop: (() => void) | undefined

  constructor(
    private readonly store: CircuitStore,
    private readonly topic: string,
    private readonly group: string,
    private readonly coolDownMs: number | undefined,
    private readonly clock: Clock,
  ) {}

  async start(): Promise<void> {
    this.#stop = this.store.watch(this.topic, this.group, (key, circuit) => {
      if (circuit === undefined) this.#open.delete(key)
      else this.#open.set(key, this.clock.now() - circuit.ageMs)
    })
    for (const circuit of await this.store.list(this.topic, this.group)) {
      this.#open.set(circuit.key, this.clock.now() - circuit.ageMs)
    }
  }

  stop(): void {
    this.#stop?.()
  }

  get size(): number {
    return this.#open.size
  }

  /** `half-open`: the cool-down is over, so one message may try. */
  state(key: string): 'closed' | 'open' | 'half-open' {
    if (this.#open.size === 0) return 'closed'
    const openedAt = this.#open.get(key)
    if (openedAt === undefined) return 'closed'
    if (this.coolDownMs === undefined) return 'open'
    return this.clock.now() - openedAt >= this.coolDownMs ? 'half-open' : 'open'
  }

  // The own view changes before the store is asked, as what `watch` tells meanwhile is newer; a failure takes it back.

  async open(key: string, reason: string): Promise<void> {
    const before = this.#open.get(key)
    const openedAt = this.clock.now()
    this.#open.set(key, openedAt)
    try {
      await this.store.open(this.topic, this.group, key, reason)
    } catch (error) {
      if (this.#open.get(key) === openedAt) this.#restore(key, before)
      throw error
    }
  }

  async close(key: string): Promise<void> {
    const before = this.#open.get(key)
    this.#open.delete(key)
    try {
      await this.store.close(this.topic, this.group, key)
    } catch (error) {
      if (!this.#open.has(key)) this.#restore(key, before)
      throw error
    }
  }

  #restore(key: string, openedAt: number | undefined): void {
    if (openedAt === undefined) this.#open.delete(key)
    else this.#open.set(key, openedAt)
  }
}
