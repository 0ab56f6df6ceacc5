import type { Circuit, CircuitStore } from '@longshore/core'

type Listener = (key: string, circuit: Circuit | undefined) => void

/** Circuits in memory, for drivers that keep none of their own. */
export class MemoryCircuits implements CircuitStore {
  readonly #open = new Map<string, Map<string, { reason: string; since: number }>>()
  readonly #listeners = new Map<string, Set<Listener>>()

  async list(topic: string, group: string): Promise<readonly Circuit[]> {
    const open = this.#open.get(`${topic} ${group}`) ?? new Map()
    return [...open].map(([key, { reason, since }]) => ({
      key,
      reason,
      ageMs: Date.now() - since,
    }))
  }

  async open(topic: string, group: string, key: string, reason: string): Promise<void> {
    const name = `${topic} ${group}`
    const open = this.#open.get(name) ?? new Map()
    this.#open.set(name, open)
    open.set(key, { reason, since: Date.now() })
    this.#tell(name, key, { key, reason, ageMs: 0 })
  }

  async close(topic: string, group: string, key: string): Promise<boolean> {
    const name = `${topic} ${group}`
    const wasOpen = this.#open.get(name)?.delete(key) ?? false
    if (wasOpen) this.#tell(name, key, undefined)
    return wasOpen
  }

  watch(topic: string, group: string, onChange: Listener): () => void {
    const name = `${topic} ${group}`
    const listeners = this.#listeners.get(name) ?? new Set()
    this.#listeners.set(name, listeners)
    listeners.add(onChange)
    return () => listeners.delete(onChange)
  }

  #tell(name: string, key: string, circuit: Circuit | undefined): void {
    for (const listener of this.#listeners.get(name) ?? []) listener(key, circuit)
  }
}
