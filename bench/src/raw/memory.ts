/** The bare counterpart of the memory driver: an EventEmitter whose listener awaits the handler. Nothing is encoded. */
import { EventEmitter } from 'node:events'
import type { Entry, Kind, Payloads, RawClient, Session, Settings } from '../session.js'

/** What waits for one handler slot, or for one key. */
class Lane<T> {
  readonly waiting: T[] = []
  next = 0
  running = 0
}

class EmitterSession<T> implements Session<T> {
  readonly #emitter = new EventEmitter()
  readonly #lanes = new Map<string, Lane<T>>()
  readonly #limit: number
  #paused = false

  constructor({ concurrency, order }: Settings) {
    this.#limit = order === 'key' ? 1 : concurrency
  }

  async consume(handler: (payload: T) => Promise<void>): Promise<void> {
    this.#emitter.on('message', async (payload: T, lane: Lane<T>) => {
      await handler(payload)
      lane.running--
      this.#pump(lane)
    })
  }

  async publish(payload: T, key = ''): Promise<void> {
    this.#add(payload, key)
  }

  async publishBatch(entries: readonly Entry<T>[]): Promise<void> {
    for (const { payload, key } of entries) this.#add(payload, key ?? '')
  }

  #add(payload: T, key: string): void {
    let lane = this.#lanes.get(key)
    if (lane === undefined) {
      lane = new Lane()
      this.#lanes.set(key, lane)
    }
    lane.waiting.push(payload)
    this.#pump(lane)
  }

  #pump(lane: Lane<T>): void {
    while (!this.#paused && lane.running < this.#limit && lane.next < lane.waiting.length) {
      const payload = lane.waiting[lane.next++]!
      if (lane.next === lane.waiting.length || lane.next === 1024) {
        lane.waiting.splice(0, lane.next)
        lane.next = 0
      }
      lane.running++
      this.#emitter.emit('message', payload, lane)
    }
  }

  pause(): void {
    this.#paused = true
  }

  resume(): void {
    this.#paused = false
    for (const lane of this.#lanes.values()) this.#pump(lane)
  }

  async close(): Promise<void> {
    for (const lane of this.#lanes.values()) {
      if (lane.waiting.length > lane.next) throw new Error('messages were left unhandled')
    }
    this.#emitter.removeAllListeners()
  }
}

export const memory: RawClient = {
  name: 'EventEmitter',
  async open<K extends Kind>(settings: Settings<K>) {
    return new EmitterSession<Payloads[K]>(settings)
  },
}
