import type { Admin, GroupOptions, GroupStats } from '@longshore/core'
import type { Settings } from './settings.js'
import { keysExchange, type Topology } from './topology.js'

/** Creates and deletes what topics and groups have at the broker, whether or not `autoCreate` is on. */
export class RabbitmqAdmin implements Admin {
  constructor(
    private readonly topology: Topology,
    private readonly settings: Settings,
  ) {}

  async createTopic(topic: string): Promise<void> {
    // Somebody else may have deleted what was made before.
    this.topology.forget()
    await this.topology.topic(topic, true)
    await this.topology.openWays(this.topology.destinationsOf(topic))
  }

  async createGroup(topic: string, group: string, options: GroupOptions): Promise<void> {
    const { order, routes = undefined } = options
    const spec = { topic, group, order, routes }
    this.topology.forget()
    await this.topology.checkOrder(spec)
    await this.topology.group(spec, true)
  }

  /** The topic's exchange; groups are queues of their own, which the broker doesn't list to clients: delete them first. */
  async deleteTopic(topic: string): Promise<void> {
    const exchange = this.settings.names.exchange(topic)
    if (exchange !== '') {
      await this.topology.run(`deleting the exchange '${exchange}'`, async (channel) => {
        await channel.checkExchange(exchange)
        await channel.deleteExchange(exchange)
      })
    }
    this.topology.forget()
  }

  async deleteGroup(topic: string, group: string): Promise<void> {
    const { names } = this.settings
    const queue = names.queue(topic, group)
    const circuits = names.circuits(topic, group)
    await this.#mustBeThere(topic, group)
    await this.topology.run(`deleting group '${group}' of topic '${topic}'`, async (channel) => {
      const queues = [queue, `${queue}..members`, names.deadLetters(topic, group), circuits]
      for (let n = 0; n < 64; n++) queues.push(`${queue}..${n}`)
      for (const each of queues) await channel.deleteQueue(each)
      await channel.deleteExchange(keysExchange(queue))
      await channel.deleteExchange(circuits)
      for (let n = 1; n <= 64; n++) await channel.deleteExchange(`${queue}..rest..${n}`)
    })
    this.topology.forget()
  }

  async stats(topic: string, group: string): Promise<GroupStats> {
    const { names } = this.settings
    const order = await this.#mustBeThere(topic, group)
    const queues = this.topology.queuesOf({ topic, group, order, routes: undefined })
    return this.topology.run(`counting group '${group}' of topic '${topic}'`, async (channel) => {
      let ready = 0
      for (const queue of queues) ready += (await channel.checkQueue(queue)).messageCount
      const dead = (await channel.checkQueue(names.deadLetters(topic, group))).messageCount
      // AMQP tells a queue's ready messages only.
      return { ready, delayed: undefined, inFlight: undefined, dead }
    })
  }

  async #mustBeThere(topic: string, group: string): Promise<'none' | 'key'> {
    const queue = this.settings.names.queue(topic, group)
    if (await this.topology.hasExchange(keysExchange(queue))) return 'key'
    await this.topology.run(`group '${group}' of topic '${topic}'`, (channel) =>
      channel.checkQueue(queue),
    )
    return 'none'
  }
}
