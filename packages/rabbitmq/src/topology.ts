import { ConflictError, type LongshoreError } from '@longshore/core'
import type { SubscriptionSpec } from '@longshore/core/driver'
import type { Channel } from 'amqplib'
import { type Link, watch } from './connection.js'
import type { Destination } from './delay.js'
import { codeOf, isLost, reply, toTyped } from './errors.js'
import { type Settings, slots } from './settings.js'

export type GroupSpec = Pick<SubscriptionSpec, 'topic' | 'group' | 'order' | 'routes'>

/**
 * RabbitMQ 4 drops a message that was returned 20 times, even one that no consumer has failed; who counts here is the
 * core. As 3.10 takes -1 for "drop at once", not for "never", a number that is never reached says it on all versions.
 */
export const noDeliveryLimit = 1_000_000_000

/** How often a step is begun again when the connection was lost under it. */
const mostLosses = 3

/** Where to publish what is meant for one group alone. */
export interface Entry {
  readonly exchange: string
  readonly routingKey: string
}

/** Where an ordered group takes what has no slot; its name tells the number of partitions. */
const restExchange = ({ topic, group }: GroupSpec, partitions: number, { names }: Settings) =>
  `${names.queue(topic, group)}..rest..${partitions}`

/** The exchange that splits an ordered group. */
export const keysExchange = (queue: string): string => `${queue}..keys`

/** Declares what topics and groups need, once for each connection; whatever was lost is declared anew. */
export class Topology {
  #made = new Map<string, Promise<void>>()
  /** Changes when everything may be gone. */
  epoch = 0
  #channel: Channel | undefined
  /** Declarations run one after another: a refused one closes the channel under those beside it. */
  #last: Promise<unknown> = Promise.resolve()

  constructor(
    private readonly link: Link,
    private readonly settings: Settings,
  ) {}

  /** What was declared may be gone: the connection is another, or the broker missed something. */
  forget(): void {
    this.epoch++
    this.#made = new Map()
  }

  /** Runs `step` alone on a channel of its own. Rejects with a typed error. */
  run<T>(doing: string, step: (channel: Channel) => Promise<T>): Promise<T> {
    const result = this.#last.then(() => this.#run(doing, step))
    this.#last = result.catch(() => {})
    return result
  }

  async #run<T>(doing: string, step: (channel: Channel) => Promise<T>): Promise<T> {
    for (let losses = 0; ; losses++) {
      try {
        return await step(await this.#open())
      } catch (error) {
        if (!isLost(error)) throw toTyped(error, doing)
        // It may have ended before anybody listened. All steps may be repeated.
        this.#channel = undefined
        if (losses >= mostLosses) throw toTyped(error, doing)
      }
    }
  }

  async #open(): Promise<Channel> {
    if (this.#channel !== undefined) return this.#channel
    const model = await this.link.whenUp()
    const channel = await model.createChannel()
    watch(channel, () => {
      if (this.#channel === channel) this.#channel = undefined
    })
    this.#channel = channel
    return channel
  }

  /** Runs `step` unless it succeeded before on this connection. */
  once(key: string, doing: string, step: (channel: Channel) => Promise<unknown>): Promise<void> {
    const made = this.#made
    const known = made.get(key)
    if (known !== undefined) return known
    const making = this.run(doing, step).then(() => {})
    made.set(key, making)
    making.catch(() => made.delete(key))
    return making
  }

  // --- Topics ---

  /** The topic's exchange: declared, or (without autoCreate) found. */
  topic(topic: string, create = this.settings.autoCreate): Promise<void> {
    const { exchangeType, names } = this.settings
    const exchange = names.exchange(topic)
    if (exchange === '') return Promise.resolve()
    const key = `exchange ${exchange}${create ? '' : ' is there'}`
    return this.once(key, `the exchange '${exchange}' of topic '${topic}'`, (channel) =>
      create
        ? channel.assertExchange(exchange, exchangeType, { durable: true })
        : channel.checkExchange(exchange),
    )
  }

  // --- Groups ---

  queuesOf({ topic, group, order }: GroupSpec): readonly string[] {
    const queue = this.settings.names.queue(topic, group)
    if (order !== 'key') return [queue]
    return Array.from({ length: this.settings.partitions }, (_, n) => `${queue}..${n}`)
  }

  /** The queue by which an ordered group counts its members. */
  membersOf({ topic, group }: GroupSpec): string {
    return `${this.settings.names.queue(topic, group)}..members`
  }

  async group(spec: GroupSpec, create = this.settings.autoCreate): Promise<void> {
    const { topic, group } = spec
    const queues = this.queuesOf(spec)
    if (!create) {
      for (const queue of queues) await this.#mustExist(queue)
      // With another number of partitions some of them would be consumed by nobody.
      if (spec.order === 'key')
        await this.#mustHave(restExchange(spec, queues.length, this.settings))
      return
    }
    await this.topic(topic, true)
    const queue = this.settings.names.queue(topic, group)
    await this.once(
      `group ${queue}`,
      `the group '${group}' of topic '${topic}'`,
      async (channel) => {
        if (spec.order === 'key') await this.#ordered(channel, spec, queue, queues)
        else await this.#plain(channel, spec, queue)
      },
    )
    const dead = this.settings.names.deadLetters(topic, group)
    await this.once(`dead ${dead}`, `the dead-letter queue '${dead}'`, (channel) =>
      this.declareQueue(channel, dead),
    )
    // From the start: members that may create nothing retry, too, and what is delayed finds a queue that was made anew.
    await this.openWays(this.destinationsOf(topic, queues))
  }

  /** Where delayed messages of a topic, and of one of its groups, come out. */
  destinationsOf(topic: string, queues: readonly string[] = []): readonly Destination[] {
    const { exchangeType, names } = this.settings
    const all: Destination[] = queues.map((name) => ({ kind: 'queue', name }))
    const exchange = names.exchange(topic)
    // Direct exchanges take no delayed messages, and the default one hands over by the queue's name.
    if (exchange !== '' && exchangeType !== 'direct') all.push({ kind: 'exchange', name: exchange })
    return all
  }

  #mustHave(exchange: string): Promise<void> {
    const doing = `the partitions of the group, whose number the exchange '${exchange}' tells`
    return this.once(`exchange ${exchange} is there`, doing, (channel) =>
      channel.checkExchange(exchange),
    )
  }

  #mustExist(queue: string): Promise<void> {
    return this.once(`queue ${queue} is there`, `the queue '${queue}'`, (channel) =>
      channel.checkQueue(queue),
    )
  }

  async #plain(channel: Channel, spec: GroupSpec, queue: string): Promise<void> {
    await this.declareQueue(channel, queue)
    const exchange = this.settings.names.exchange(spec.topic)
    for (const key of this.#keys(spec, exchange)) await channel.bindQueue(queue, exchange, key)
  }

  /**
   * A headers exchange hands each message to the partition of its slot; what has none (foreign messages, messages without
   * key) takes the alternate way to the first partition. The alternate's name tells the number of partitions, so that the
   * broker itself refuses another number.
   */
  async #ordered(
    channel: Channel,
    spec: GroupSpec,
    group: string,
    queues: readonly string[],
  ): Promise<void> {
    const exchange = this.settings.names.exchange(spec.topic)
    const keys = keysExchange(group)
    const rest = restExchange(spec, queues.length, this.settings)
    await channel.assertExchange(rest, 'fanout', { durable: true })
    await channel.assertExchange(keys, 'headers', { durable: true, alternateExchange: rest })
    for (const queue of queues) {
      await this.declareQueue(channel, queue, { 'x-single-active-consumer': true })
    }
    await channel.bindQueue(queues[0]!, rest, '')
    await channel.assertQueue(this.membersOf(spec), { durable: true })
    for (let slot = 0; slot < slots; slot++) {
      await channel.bindQueue(queues[slot % queues.length]!, keys, '', {
        'x-match': 'all',
        'longshore-slot': String(slot),
      })
    }
    for (const key of this.#keys(spec, exchange)) await channel.bindExchange(keys, exchange, key)
  }

  /** Binding keys; a delayed message comes with its delay in front of its own key. */
  #keys({ topic, group, routes }: GroupSpec, exchange: string): readonly string[] {
    if (exchange === '') return []
    const { bindingKeys, exchangeType } = this.settings
    const keys = bindingKeys(topic, group, routes)
    if (exchangeType !== 'topic') return keys
    return keys.flatMap((key) =>
      key === '#' ? [key] : [key, `${this.delayedPrefix(exchange)}${key}`],
    )
  }

  /** Opens the ways of delayed messages to a group that was made by others, whose bindings know nothing of delays. */
  async openWaysOf(spec: GroupSpec): Promise<void> {
    const { topic, group, order, routes } = spec
    const { bindingKeys, exchangeType, names } = this.settings
    await this.openWays(this.destinationsOf(topic, this.queuesOf(spec)))
    const exchange = names.exchange(topic)
    if (exchangeType !== 'topic' || exchange === '') return
    const queue = names.queue(topic, group)
    await this.run(`delays for the group '${group}' of topic '${topic}'`, async (channel) => {
      for (const key of bindingKeys(topic, group, routes)) {
        const delayed = `${this.delayedPrefix(exchange)}${key}`
        if (order === 'key') await channel.bindExchange(keysExchange(queue), exchange, delayed)
        else await channel.bindQueue(queue, exchange, delayed)
      }
    })
  }

  /** Both are set by the delays, which know what a delayed message's key looks like, and where it comes from. */
  delayedPrefix: (exchange: string) => string = () => ''
  openWays: (to: readonly Destination[]) => Promise<void> = async () => {}

  declareQueue(channel: Channel, queue: string, more: Record<string, unknown> = {}) {
    const { queueType, priorities } = this.settings
    const own =
      queueType === 'quorum'
        ? { 'x-delivery-limit': noDeliveryLimit }
        : priorities > 0
          ? { 'x-max-priority': priorities - 1 }
          : {}
    return channel.assertQueue(queue, {
      durable: true,
      arguments: { 'x-queue-type': queueType, ...own, ...more },
    })
  }

  /**
   * A group is ordered or not for good, as the two have different objects.
   * @throws ConflictError
   */
  async checkOrder({ topic, group, order }: GroupSpec): Promise<void> {
    const queue = this.settings.names.queue(topic, group)
    const other = await (order === 'key'
      ? this.hasQueue(queue)
      : this.hasExchange(keysExchange(queue)))
    if (!other) return
    const [is, asked] = order === 'key' ? ['none', 'key'] : ['key', 'none']
    throw new ConflictError(
      `group '${group}' of topic '${topic}' was made with order '${is}', not '${asked}'; subscribe with the same, choose another ` +
        `group name, or, once it is empty, delete ${order === 'key' ? `the queue '${queue}'` : `it with bus.admin.deleteGroup('${topic}', '${group}')`}`,
    )
  }

  hasQueue(queue: string): Promise<boolean> {
    return this.#has(`looking for the queue '${queue}'`, (channel) => channel.checkQueue(queue))
  }

  hasExchange(exchange: string): Promise<boolean> {
    return this.#has(`looking for the exchange '${exchange}'`, (channel) =>
      channel.checkExchange(exchange),
    )
  }

  async #has(doing: string, step: (channel: Channel) => Promise<unknown>): Promise<boolean> {
    try {
      await this.run(doing, step)
      return true
    } catch (error) {
      if (codeOf((error as LongshoreError).cause) === reply.notFound) return false
      throw error
    }
  }

  /** Declares the topic's exchange and the group's bindings again, which others may have deleted; the rest would be noticed. */
  async rebind(spec: GroupSpec): Promise<void> {
    const { topic, group } = spec
    const { exchangeType, names } = this.settings
    const exchange = names.exchange(topic)
    if (exchange === '') return
    const queue = names.queue(topic, group)
    await this.run(`the bindings of group '${group}' of topic '${topic}'`, async (channel) => {
      await channel.assertExchange(exchange, exchangeType, { durable: true })
      for (const key of this.#keys(spec, exchange)) {
        if (spec.order === 'key') await channel.bindExchange(keysExchange(queue), exchange, key)
        else await channel.bindQueue(queue, exchange, key)
      }
    })
  }

  /** How many messages wait in a queue. */
  async ready(queue: string): Promise<number> {
    const { messageCount } = await this.run(`looking at '${queue}'`, (channel) =>
      channel.checkQueue(queue),
    )
    return messageCount
  }

  /** Where messages for this group alone enter it. */
  async entryOf(topic: string, group: string): Promise<Entry> {
    const queue = this.settings.names.queue(topic, group)
    const keys = keysExchange(queue)
    if (await this.hasExchange(keys)) return { exchange: keys, routingKey: '' }
    return { exchange: '', routingKey: queue }
  }
}
