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
    const { concurrency, order } = this.#settings
    this.#subscription = await this.#bus.subscribe(
      this.#topic,
      { group, concurrency, order },
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
    if (this.#bus.capabilities.admin) {
      const {
        ready,
        delayed = 0,
        inFlight = 0,
        dead,
      } = await this.#bus.admin.stats(this.#topic.name, group)
      const left = ready + delayed + inFlight + dead
      if (left > 0) throw new Error(`${left} messages were not acked`)
      await this.#bus.admin.deleteTopic(this.#topic.name)
    }
    await this.#bus.close()
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
