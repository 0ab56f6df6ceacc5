import type { CircuitStore } from '../circuits.js'
import type { Clock } from '../clock.js'

/** What one consumer knows of its group's circuits: a copy of the store, kept up to date. */
export class CircuitView {
  /** Key to the time, by this process's clock, at which it opened. */
  readonly #open = new Map<string, number>()
  /** Changes of our own that the store has not confirmed yet. */
  readonly #changing = new Map<string, { overtaken: boolean }>()
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
      const change = this.#changing.get(key)
      if (change !== undefined) change.overtaken = true
      this.#set(key, circuit === undefined ? undefined : this.clock.now() - circuit.ageMs)
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

  async open(key: string, reason: string): Promise<void> {
    await this.#change(key, this.clock.now(), () =>
      this.store.open(this.topic, this.group, key, reason),
    )
  }

  async close(key: string): Promise<void> {
    await this.#change(key, undefined, () => this.store.close(this.topic, this.group, key))
  }

  /** The own view changes before the store is asked, as what `watch` tells meanwhile is newer; a failure takes it back. */
  async #change(
    key: string,
    openedAt: number | undefined,
    step: () => Promise<unknown>,
  ): Promise<void> {
    const change = { overtaken: false }
    const before = this.#open.get(key)
    this.#set(key, openedAt)
    this.#changing.set(key, change)
    try {
      await step()
    } catch (error) {
      if (!change.overtaken) this.#set(key, before)
      throw error
    } finally {
      this.#changing.delete(key)
    }
  }

  #set(key: string, openedAt: number | undefined): void {
    if (openedAt === undefined) this.#open.delete(key)
    else this.#open.set(key, openedAt)
  }
}
