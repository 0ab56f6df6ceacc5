import {
  type Bus,
  binary,
  type ConsumeMiddleware,
  connect,
  json,
  type Subscription,
  silentLogger,
  type Topic,
  text,
  topic,
} from '@longshore/core'
import { emptied } from './emptied.js'
import type { Entry, Kind, Payloads, Session, Settings, Target } from './session.js'

/** Three middlewares that only pass on: what any chain costs at least. */
const middleware: readonly ConsumeMiddleware[] = [
  async (context, next) => {
    await next(context)
  },
  async (context, next) => {
    await next(context)
  },
  async (context, next) => {
    await next(context)
  },
]

const group = 'bench'
let sessions = 0

class BusSession<T> implements Session<T> {
  readonly #bus: Bus
  readonly #topic: Topic<T>
  readonly #settings: Settings
  #subscription: Subscription | undefined

  constructor(bus: Bus, topic: Topic<T>, settings: Settings) {
    this.#bus = bus
    this.#topic = topic
    this.#settings = settings
  }

  async consume(handler: (payload: T) => Promise<void>): Promise<void> {
    const { concurrency, order, prefetch } = this.#settings
    this.#subscription = await this.#bus.subscribe(
      this.#topic,
      { group, concurrency, order, ...(prefetch !== undefined && { prefetch }) },
      handler as (payload: unknown) => Promise<void>,
    )
  }

  publish(payload: T, key?: string): Promise<unknown> {
    return this.#bus.publish(
      this.#topic,
      payload as NoInfer<T>,
      key === undefined ? undefined : { key },
    )
  }

  async publishBatch(entries: readonly Entry<T>[]): Promise<void> {
    for (const outcome of await this.#bus.publishBatch(this.#topic, entries)) {
      if (outcome.status !== 'confirmed') throw outcome.error
    }
  }

  pause(): void {
    this.#subscription?.pause()
  }

  resume(): void {
    this.#subscription?.resume()
  }

  async close(): Promise<void> {
    await this.#subscription?.close()
    const left = this.#bus.capabilities.admin ? await this.#delete() : 0
    await this.#bus.close()
    if (left > 0) throw new Error(`${left} messages were not acked`)
  }

  /** Resolves to the number of messages that were left. */
  async #delete(): Promise<number> {
    const { admin } = this.#bus
    const { name } = this.#topic
    const left = await emptied(async () => {
      const { ready, delayed, inFlight, dead } = await admin.stats(name, group)
      return ready + (delayed ?? 0) + (inFlight ?? 0) + dead
    })
    await admin.deleteTopic(name)
    return left
  }
}

/** Longshore with the driver of this URL. */
export function longshore(url: string): Target {
  return {
    name: 'Longshore',
    async open<K extends Kind>(settings: Settings<K>) {
      const bus = await connect(url, { logger: silentLogger, consume: { middleware } })
      const codec = { text, binary, json: json<Payloads['json']> }[settings.kind]()
      const name = `bench-${process.pid}-${++sessions}`
      const own = topic(name, { codec: codec as never }) as Topic<Payloads[K]>
      return new BusSession(bus, own, settings)
    },
  }
}
