import { type Bus, connect, type MemoryOptions } from '@longshore/core'
import type { WireMessage } from '@longshore/core/driver'
import type { ConformanceTarget, NativeMessage, Repair } from '../target.js'

/** What `bus.native()` of the memory driver gives, as far as the kit uses it. */
interface Connection {
  readonly broker: Broker
  crash(): void
}

interface Broker {
  publish(
    topic: string,
    body: Uint8Array,
    options?: { headers?: Readonly<Record<string, string>>; key?: string },
  ): void
  tap(topic: string, listener: (message: WireMessage) => void): () => void
  deleteTopic(topic: string): void
  sever(): void
  stop(): void
  start(): void
  restart(): void
  faults: {
    publish?: (message: WireMessage) => 'reject' | 'lose' | 'lose-confirm' | undefined
    settle?: (kind: 'ack' | 'retry' | 'dead-letter', message: WireMessage) => 'fail' | undefined
  }
}

type Connect = ConformanceTarget['connect']

const native = (bus: Bus) => bus.native() as Connection

/**
 * The memory driver as a target: the worked example. One target is one broker.
 * @param connectTo in place of the memory driver itself, for drivers that wrap it
 */
export function memoryTarget(
  name: string,
  options: MemoryOptions = {},
  connectTo: Connect = (busOptions) =>
    connect({ driver: 'memory', options: { ...options, name }, ...busOptions }),
): ConformanceTarget {
  let known: Broker | undefined
  const broker = async (): Promise<Broker> => {
    if (known === undefined) {
      const bus = await connectTo()
      known = native(bus).broker
      await bus.close()
    }
    return known
  }
  const faults = new Faults()
  const at = async () => {
    const found = await broker()
    faults.install(found)
    return found
  }
  return {
    driver: options.partitions ? 'memory-partitioned' : 'memory',
    connect: connectTo,
    hooks: {
      restart: async () => (await broker()).restart(),
      stopBroker: async () => (await broker()).stop(),
      startBroker: async () => (await broker()).start(),
      severConnections: async () => (await broker()).sever(),
      crash: async (bus) => native(bus).crash(),
      publishNative: async (topic, { body, ...rest }) =>
        (await broker()).publish(topic, body, rest),
      readNative: async (topic) => read(await broker(), topic),
      deleteTopology: async (topic) => (await broker()).deleteTopic(topic),
      breakDeadLetters: async (topic) => at().then(() => faults.settle(topic, 'dead-letter')),
      breakRetries: async (topic) => at().then(() => faults.settle(topic, 'retry')),
      rejectPublishes: async (topic) => at().then(() => faults.publish(topic, 'reject')),
      losePublishes: async (topic) => at().then(() => faults.publish(topic, 'lose')),
      loseConfirms: async (topic) => at().then(() => faults.publish(topic, 'lose-confirm')),
    },
  }
}

/** The broker has one fault of each kind; these are per topic, so that checks don't disturb each other. */
class Faults {
  readonly #publish = new Map<string, 'reject' | 'lose' | 'lose-confirm'>()
  readonly #settle = new Map<string, 'retry' | 'dead-letter'>()

  install(broker: Broker): void {
    broker.faults.publish = (message) => this.#publish.get(message.topic)
    broker.faults.settle = (kind, message) =>
      this.#settle.get(message.topic) === kind ? 'fail' : undefined
  }

  publish(topic: string, fault: 'reject' | 'lose' | 'lose-confirm'): Repair {
    this.#publish.set(topic, fault)
    return () => void this.#publish.delete(topic)
  }

  settle(topic: string, kind: 'retry' | 'dead-letter'): Repair {
    this.#settle.set(topic, kind)
    return () => void this.#settle.delete(topic)
  }
}

function read(broker: Broker, topic: string) {
  const messages: WireMessage[] = []
  const stop = broker.tap(topic, (message) => messages.push(message))
  return {
    async next(): Promise<NativeMessage> {
      while (messages.length === 0) await new Promise((resolve) => setTimeout(resolve, 2))
      const { body, headers, id, key, contentType } = messages.shift()!
      return { body, headers, id, contentType, ...(key === undefined ? {} : { key }) }
    },
    close: async () => stop(),
  }
}
