import type { Circuit, CircuitStore, Clock, Logger } from '@longshore/core'
import type { Channel, ConsumeMessage, GetMessage } from 'amqplib'
import { closeChannel, type Link, watch } from './connection.js'
import { codeOf, reply, toTyped } from './errors.js'
import type { Publisher } from './publisher.js'
import type { Settings } from './settings.js'
import type { Topology } from './topology.js'

const pauseMs = 100
const longestPauseMs = 10_000
const none = Buffer.alloc(0)

interface Change {
  readonly key: string
  readonly reason: string
  readonly openedAt: number
}

/**
 * Circuits as messages: each open one lies in the queue `…..circuits`, written through an exchange of the same name, which tells
 * the other members, too. Reading takes all of them and gives them back; a queue that is exclusive to one connection is the lock
 * around that.
 */
export class QueuedCircuits implements CircuitStore {
  /** Within this process the lock can't be told from one that is ours. */
  #last: Promise<unknown> = Promise.resolve()
  /** Of this process, by the name of the circuits. */
  readonly #watchers = new Map<string, Set<(change: Change, what: string) => void>>()

  constructor(
    private readonly link: Link,
    private readonly topology: Topology,
    private readonly publisher: Publisher,
    private readonly settings: Settings,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {}

  async #name(topic: string, group: string): Promise<string> {
    const name = this.settings.names.circuits(topic, group)
    await this.topology.once(`circuits ${name}`, `the circuits '${name}'`, async (channel) => {
      await channel.assertExchange(name, 'direct', { durable: true })
      await this.topology.declareQueue(channel, name)
      await channel.bindQueue(name, name, 'open')
    })
    return name
  }

  async list(topic: string, group: string): Promise<readonly Circuit[]> {
    const name = await this.#name(topic, group)
    const open = new Map<string, Change>()
    await this.#exclusively(name, async (all) => {
      for (const raw of all) {
        const change = changeOf(raw)
        open.set(change.key, change)
      }
    })
    return [...open.values()].map((change) => this.#circuit(change))
  }

  #circuit({ key, reason, openedAt }: Change): Circuit {
    return { key, reason, ageMs: Math.max(0, this.clock.now() - openedAt) }
  }

  async open(topic: string, group: string, key: string, reason: string): Promise<void> {
    const name = await this.#name(topic, group)
    await this.#tell(name, 'open', { key, reason, openedAt: this.clock.now() })
  }

  /** Members in this process hear of it before this resolves: what is redriven next must find the circuit as it is now. */
  async #tell(name: string, what: 'open' | 'close', change: Change): Promise<void> {
    const { key, reason, openedAt } = change
    await this.publisher.send(name, what, none, {
      deliveryMode: 2,
      mandatory: true,
      messageId: key.slice(0, 80),
      headers: { key, reason, 'opened-at': openedAt },
    })
    for (const hear of this.#watchers.get(name) ?? []) hear(change, what)
  }

  async close(topic: string, group: string, key: string): Promise<boolean> {
    const name = await this.#name(topic, group)
    let found = false
    await this.#exclusively(name, async (all, channel) => {
      for (const raw of all) {
        if (changeOf(raw).key !== key) continue
        channel.ack(raw)
        found = true
      }
    })
    if (found) await this.#tell(name, 'close', { key, reason: '', openedAt: 0 })
    return found
  }

  /** Gives `step` all that lies in the queue; what it doesn't acknowledge goes back. */
  #exclusively(
    name: string,
    step: (all: readonly GetMessage[], channel: Channel) => Promise<void>,
  ): Promise<void> {
    const result = this.#last.then(() => this.#locked(name, step))
    this.#last = result.catch(() => {})
    return result
  }

  async #locked(
    name: string,
    step: (all: readonly GetMessage[], channel: Channel) => Promise<void>,
  ): Promise<void> {
    const channel = await this.#lock(`${name}..lock`)
    try {
      const all: GetMessage[] = []
      for (let raw = await channel.get(name); raw; raw = await channel.get(name)) all.push(raw)
      await step(all, channel)
      channel.nackAll(true)
      // Answered after the queue has taken them back.
      await channel.checkQueue(name)
      await channel.deleteQueue(`${name}..lock`)
      await closeChannel(channel)
    } catch (error) {
      await closeChannel(channel)
      await this.#unlock(`${name}..lock`)
      throw toTyped(error, `the circuits '${name}'`)
    }
  }

  async #lock(name: string): Promise<Channel> {
    for (;;) {
      const model = await this.link.whenUp()
      const channel = watch(await model.createChannel(), () => {})
      try {
        await channel.assertQueue(name, { exclusive: true, durable: false, autoDelete: false })
        return channel
      } catch (error) {
        if (codeOf(error) !== reply.resourceLocked) throw toTyped(error, `the lock '${name}'`)
      }
      await new Promise<void>((resolve) => {
        this.clock.setTimer(resolve, pauseMs * (0.5 + Math.random()))
      })
    }
  }

  async #unlock(name: string): Promise<void> {
    await this.topology
      .run(`the lock '${name}'`, (channel) => channel.deleteQueue(name))
      .catch(() => {})
  }

  // --- Watching ---

  watch(
    topic: string,
    group: string,
    onChange: (key: string, circuit: Circuit | undefined) => void,
  ): () => void {
    const hear = (change: Change, what: string) =>
      onChange(change.key, what === 'open' ? this.#circuit(change) : undefined)
    const name = this.settings.names.circuits(topic, group)
    const watchers = this.#watchers.get(name) ?? new Set()
    this.#watchers.set(name, watchers.add(hear))
    const watcher = new Watcher(
      this.link,
      () => this.#name(topic, group),
      hear,
      async (known) => {
        const open = new Map((await this.list(topic, group)).map((each) => [each.key, each]))
        for (const key of known) if (!open.has(key)) onChange(key, undefined)
        for (const [key, circuit] of open) onChange(key, circuit)
        return open.keys()
      },
      this.clock,
      this.logger,
    )
    return () => {
      watchers.delete(hear)
      watcher.stop()
    }
  }
}

function changeOf({ properties }: GetMessage | ConsumeMessage): Change {
  const headers = properties.headers ?? {}
  return {
    key: String(headers.key),
    reason: String(headers.reason),
    openedAt: Number(headers['opened-at']) || 0,
  }
}

/** Hears of changes on a queue of its own, and after each loss of the connection looks at what it missed. */
class Watcher {
  #stopped = false
  #channel: Channel | undefined
  #failures = 0
  #known = new Set<string>()

  constructor(
    private readonly link: Link,
    private readonly name: () => Promise<string>,
    private readonly tell: (change: Change, what: string) => void,
    private readonly catchUp: (known: ReadonlySet<string>) => Promise<Iterable<string>>,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {
    void this.#open()
  }

  async #open(): Promise<void> {
    if (this.#stopped) return
    try {
      const model = await this.link.whenUp()
      const name = await this.name()
      const channel = watch(await model.createChannel(), () => this.#lost(channel))
      if (this.#stopped) return void closeChannel(channel)
      this.#channel = channel
      const { queue } = await channel.assertQueue('', { exclusive: true, durable: false })
      await channel.bindQueue(queue, name, 'open')
      await channel.bindQueue(queue, name, 'close')
      await channel.consume(queue, (message) => this.#heard(message), { noAck: true })
      // What changed before this queue was there.
      this.#known = new Set(await this.catchUp(this.#known))
      this.#failures = 0
    } catch (error) {
      if (this.#stopped) return
      const channel = this.#channel
      this.#channel = undefined
      if (channel !== undefined) void closeChannel(channel)
      this.logger.warn(`hearing of circuits failed: ${(error as Error).message}; it is tried again`)
      this.#again()
    }
  }

  #heard(message: ConsumeMessage | null): void {
    if (message === null || this.#stopped) return
    const change = changeOf(message)
    const what = message.fields.routingKey
    if (what === 'open') this.#known.add(change.key)
    else this.#known.delete(change.key)
    this.tell(change, what)
  }

  #lost(channel: Channel): void {
    if (this.#channel !== channel) return
    this.#channel = undefined
    this.#again()
  }

  #again(): void {
    if (this.#stopped) return
    const pause = Math.min(longestPauseMs, pauseMs * 2 ** Math.min(this.#failures++, 10))
    this.clock.setTimer(() => void this.#open(), pause, false)
  }

  stop(): void {
    this.#stopped = true
    const channel = this.#channel
    this.#channel = undefined
    if (channel !== undefined) void closeChannel(channel)
  }
}
