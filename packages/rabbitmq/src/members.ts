import type { Channel } from 'amqplib'
import { closeChannel, type Link, watch } from './connection.js'
import type { Topology } from './topology.js'

/**
 * How many members a group has. RabbitMQ doesn't tell who waits behind a single active consumer, so each member also consumes
 * from a queue that stays empty, and the broker counts.
 */
export class Members {
  #channel: Channel | undefined
  #left = false

  constructor(
    private readonly queue: string,
    private readonly link: Link,
    private readonly topology: Topology,
  ) {}

  /** Takes part, if it doesn't yet; undefined if that can't be known now. */
  async count(): Promise<number | undefined> {
    try {
      if (this.#channel === undefined) await this.#join()
      const { consumerCount } = await this.topology.run(`looking at '${this.queue}'`, (channel) =>
        channel.checkQueue(this.queue),
      )
      return consumerCount
    } catch {
      return undefined
    }
  }

  async #join(): Promise<void> {
    const { model } = this.link
    if (model === undefined) throw new Error('the connection is down')
    this.#left = false
    const channel: Channel = watch(await model.createChannel(), () => {
      if (this.#channel === channel) this.#channel = undefined
    })
    this.#channel = channel
    await channel.consume(this.queue, (message) => message === null && this.#leave(), {
      noAck: true,
    })
    if (this.#left) this.#leave()
  }

  /** Also when the queue was deleted: then the next count joins again. */
  #leave(): void {
    const channel = this.#channel
    this.#channel = undefined
    if (channel !== undefined) void closeChannel(channel)
  }

  leave(): void {
    this.#left = true
    this.#leave()
  }
}
