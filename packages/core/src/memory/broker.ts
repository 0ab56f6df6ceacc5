import type { Circuit, CircuitStore } from '../circuits.js'
import type { Clock } from '../clock.js'
import type { OutgoingMessage } from '../driver.js'
import { NotFoundError } from '../errors.js'
import { type Headers, noHeaders, type WireMessage } from '../message.js'
import type { MemoryDriver } from './driver.js'
import type { MemoryGroup } from './group.js'
import type { MemoryOptions } from './options.js'
import { MemoryTopic } from './topic.js'

/** Makes operations fail, for tests of what must then happen. */
export interface MemoryFaults {
  /** `lose`: neither stored nor confirmed · `lose-confirm`: stored, not confirmed · `reject`: refused. */
  publish?: (message: WireMessage) => 'reject' | 'lose' | 'lose-confirm' | undefined
  settle?: (kind: 'ack' | 'retry' | 'dead-letter', message: WireMessage) => 'fail' | undefined
}

interface OpenCircuit {
  readonly reason: string
  readonly openedAt: number
}

/** A broker in this process. Its connections can be cut and it can be stopped, as with a real one. */
export class MemoryBroker {
  readonly topics = new Map<string, MemoryTopic>()
  readonly connections = new Set<MemoryDriver>()
  faults: MemoryFaults = {}
  #running = true
  #foreign = 0
  readonly #circuits = new Map<string, Map<string, OpenCircuit>>()
  readonly #watchers = new Map<string, Set<(key: string, circuit: Circuit | undefined) => void>>()
  readonly #waiting = new Set<() => void>()

  constructor(
    readonly clock: Clock,
    readonly options: Required<MemoryOptions>,
  ) {}

  get running(): boolean {
    return this.#running
  }

  // --- Topics and groups ---

  topic(name: string, create: boolean): MemoryTopic {
    let topic = this.topics.get(name)
    if (topic === undefined) {
      if (!create) {
        throw new NotFoundError(
          `there is no topic '${name}' and autoCreate is off; create it with bus.admin.createTopic('${name}')`,
        )
      }
      topic = new MemoryTopic(name, this.clock, this.options)
      this.topics.set(name, topic)
    }
    return topic
  }

  group(topic: string, name: string): MemoryGroup {
    const group = this.topics.get(topic)?.group(name)
    if (group === undefined) throw new NotFoundError(`topic '${topic}' has no group '${name}'`)
    return group
  }

  deleteTopic(name: string): void {
    const topic = this.topics.get(name)
    if (topic === undefined) throw new NotFoundError(`there is no topic '${name}'`)
    this.topics.delete(name)
    topic.clear()
    for (const group of topic.groups.values()) this.#orphan(group)
  }

  deleteGroup(topic: string, name: string): void {
    const group = this.group(topic, name)
    this.topics.get(topic)?.groups.delete(name)
    group.clear()
    this.#orphan(group)
  }

  /** Members of a deleted group make it anew, as drivers of real brokers do, or end. */
  #orphan(group: MemoryGroup): void {
    for (const member of [...group.members]) member.driver.rejoin(member)
  }

  // --- What is not Longshore ---

  /** As a producer that knows nothing of Longshore. */
  publish(
    topic: string,
    body: Uint8Array,
    options: { headers?: Headers; key?: string } = {},
  ): void {
    const message: WireMessage = {
      id: `memory:${topic}:${++this.#foreign}`,
      topic,
      key: options.key,
      body: new Uint8Array(body),
      headers: options.headers ? Object.freeze({ ...options.headers }) : noHeaders,
      contentType: 'application/octet-stream',
      timestamp: this.clock.now(),
      correlationId: undefined,
      causationId: undefined,
    }
    const none = { priority: undefined, ttlMs: undefined, route: undefined }
    this.store({ message, delayMs: 0, ...none }, true)
  }

  /** Shows every message that reaches the topic; returns how to stop. */
  tap(topic: string, listener: (message: WireMessage) => void): () => void {
    const { taps } = this.topic(topic, true)
    taps.add(listener)
    return () => taps.delete(listener)
  }

  store(outgoing: OutgoingMessage, create: boolean): void {
    this.topic(outgoing.message.topic, create).store(outgoing, this.clock.now())
  }

  // --- Faults ---

  /** Cuts all connections, as a broken network would. They come back by themselves. */
  sever(): void {
    for (const connection of [...this.connections]) connection.lose('the connection was cut')
  }

  stop(): void {
    this.#running = false
    for (const connection of [...this.connections]) connection.lose('the broker stopped')
  }

  start(): void {
    this.#running = true
    for (const wake of [...this.#waiting]) wake()
    for (const connection of [...this.connections]) connection.reconnect()
  }

  restart(): void {
    this.stop()
    this.start()
  }

  /** Calls `wake` at each start; returns how to stop. */
  onStart(wake: () => void): () => void {
    this.#waiting.add(wake)
    return () => this.#waiting.delete(wake)
  }

  // --- Circuits ---

  readonly circuits: CircuitStore = {
    list: async (topic, group) => {
      const now = this.clock.now()
      const open = this.#circuits.get(scope(topic, group)) ?? []
      return [...open].map(([key, c]) => ({ key, reason: c.reason, ageMs: now - c.openedAt }))
    },
    open: async (topic, group, key, reason) => {
      const name = scope(topic, group)
      const open = this.#circuits.get(name) ?? new Map<string, OpenCircuit>()
      this.#circuits.set(name, open)
      open.set(key, { reason, openedAt: this.clock.now() })
      this.#tell(name, key, { key, reason, ageMs: 0 })
    },
    close: async (topic, group, key) => {
      const name = scope(topic, group)
      const open = this.#circuits.get(name)
      if (!open?.delete(key)) return false
      if (open.size === 0) this.#circuits.delete(name)
      this.#tell(name, key, undefined)
      return true
    },
    watch: (topic, group, onChange) => {
      const name = scope(topic, group)
      const set = this.#watchers.get(name) ?? new Set()
      this.#watchers.set(name, set)
      set.add(onChange)
      return () => {
        set.delete(onChange)
        if (set.size === 0) this.#watchers.delete(name)
      }
    },
  }

  #tell(name: string, key: string, circuit: Circuit | undefined): void {
    for (const watcher of this.#watchers.get(name) ?? []) watcher(key, circuit)
  }
}

const scope = (topic: string, group: string) => `${topic}\n${group}`
