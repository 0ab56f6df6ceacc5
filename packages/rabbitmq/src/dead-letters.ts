import {
  ConnectionError,
  type DeadLetterSelection,
  type Failure,
  NotFoundError,
  type StoredDeadLetter,
} from '@longshore/core'
import { type DeadLetterAccess, decodeFailure } from '@longshore/core/driver'
import type { Channel, Message } from 'amqplib'
import { closeChannel, type Link, watch } from './connection.js'
import { codeOf, reply, toTyped } from './errors.js'
import type { Publisher } from './publisher.js'
import type { Settings } from './settings.js'
import type { Topology } from './topology.js'
import { messageOf, placeOf, redrivenCopy, renewedCopy } from './wire.js'

/**
 * Letters that are copied and then let go of together. The server's channel holds back acks above 32, and a crash would repeat
 * their letters.
 */
const pageSize = 32

/** Returns after which a letter is stored anew. */
const mostLooks = 10

/** As many are read, and put in order, at a time. */
const batchLetters = 10_000
const batchBytes = 32 * 1024 * 1024

/**
 * Dead letters lie in a queue of their own. Looking at them takes them from the queue without acknowledging them, and gives them
 * back: meanwhile others don't see them. A quorum queue scrambles what it takes back, so each letter carries its place.
 */
export class QueuedDeadLetters implements DeadLetterAccess {
  constructor(
    private readonly link: Link,
    private readonly topology: Topology,
    private readonly publisher: Publisher,
    private readonly settings: Settings,
  ) {}

  async *browse(topic: string, group: string): AsyncIterable<StoredDeadLetter> {
    const reader = await this.#open(topic, group)
    try {
      for (let batch = await reader.batch(); batch.length > 0; batch = await reader.batch()) {
        // So that whoever looks may redrive and discard at the same time.
        if (reader.atEnd) await reader.giveBack()
        for (const raw of batch) yield this.#letterOf(topic, group, raw)
        if (reader.atEnd) return
      }
    } finally {
      await reader.giveBack()
    }
  }

  async redrive(topic: string, group: string, selection: DeadLetterSelection): Promise<number> {
    const { exchange, routingKey } = await this.topology.entryOf(topic, group)
    return this.#each(topic, group, selection, async (page, reader) => {
      const copies = page.map((raw) =>
        this.publisher.send(exchange, routingKey, raw.content, redrivenCopy(raw)),
      )
      const outcomes = await Promise.allSettled(copies)
      page.forEach((raw, i) => {
        if (outcomes[i]?.status === 'fulfilled') reader.take(raw)
      })
      const failed = outcomes.find((outcome) => outcome.status === 'rejected')
      if (failed !== undefined) throw failed.reason
    })
  }

  discard(topic: string, group: string, selection: DeadLetterSelection): Promise<number> {
    return this.#each(topic, group, selection, async (page, reader) => {
      for (const raw of page) reader.take(raw)
      await reader.taken()
    })
  }

  async #each(
    topic: string,
    group: string,
    { ids, match, limit = Number.POSITIVE_INFINITY, signal }: DeadLetterSelection,
    take: (page: readonly Message[], reader: Reader) => Promise<void>,
  ): Promise<number> {
    if (limit === 0) return 0
    const reader = await this.#open(topic, group)
    const chosen = (raw: Message) =>
      (ids === undefined || ids.has(raw.properties.messageId)) &&
      (match === undefined || match(this.#letterOf(topic, group, raw)))
    let taken = 0
    try {
      for (let batch = await reader.batch(); batch.length > 0; batch = await reader.batch()) {
        const all = batch.filter(chosen).slice(0, limit - taken)
        for (let at = 0; at < all.length && !signal?.aborted; at += pageSize) {
          const page = all.slice(at, at + pageSize)
          await take(page, reader)
          taken += page.length
        }
        if (reader.atEnd || taken >= limit || signal?.aborted) break
      }
    } finally {
      await reader.giveBack()
    }
    return taken
  }

  #letterOf(topic: string, group: string, raw: Message): StoredDeadLetter {
    const message = messageOf(topic, raw)
    const failure = decodeFailure(raw.properties.headers ?? {})
    return { message, failure: failure ?? foreignFailure(topic, group, message.timestamp) }
  }

  async #open(topic: string, group: string): Promise<Reader> {
    const queue = this.settings.names.deadLetters(topic, group)
    if (!(await this.topology.hasQueue(queue))) {
      throw new NotFoundError(
        `group '${group}' of topic '${topic}' has no dead-letter queue '${queue}'; subscribing makes it, or bus.admin.createGroup`,
      )
    }
    const model = await this.link.whenUp()
    const channel = watch(await model.createChannel(), () => {})
    return new Reader(channel, queue, this.publisher)
  }
}

class Reader {
  atEnd = false
  #done = false
  #took = false
  readonly #held = new Set<Message>()

  constructor(
    private readonly channel: Channel,
    private readonly queue: string,
    private readonly publisher: Publisher,
  ) {}

  /** The next letters, oldest first. */
  async batch(): Promise<Message[]> {
    const batch: Message[] = []
    try {
      for (let bytes = 0; batch.length < batchLetters && bytes < batchBytes; ) {
        const raw = await this.channel.get(this.queue)
        this.atEnd = !raw
        if (!raw) break
        batch.push(raw)
        this.#held.add(raw)
        bytes += raw.content.length
      }
    } catch (error) {
      throw toTyped(error, `reading the queue '${this.queue}'`)
    }
    return batch.sort((a, b) => (placeOf(a) < placeOf(b) ? -1 : placeOf(a) > placeOf(b) ? 1 : 0))
  }

  take(raw: Message): void {
    this.#held.delete(raw)
    this.#took = true
    this.channel.ack(raw)
  }

  /**
   * The broker has heard of all that was taken.
   * @throws ConnectionError if that can't be known
   */
  async taken(): Promise<void> {
    try {
      await this.channel.checkQueue(this.queue)
    } catch (error) {
      throw toTyped(error, `taking letters from '${this.queue}'`)
    }
  }

  /** Those that were looked at so often that a queue with RabbitMQ's own limit (20) would drop them soon are stored anew. */
  async #renew(): Promise<void> {
    const worn = [...this.#held].filter(({ properties }) => {
      const count: unknown = properties.headers?.['x-delivery-count']
      return typeof count === 'number' && count >= mostLooks
    })
    for (let at = 0; at < worn.length; at += pageSize) {
      const page = worn.slice(at, at + pageSize)
      const copies = page.map((raw) =>
        this.publisher.send('', this.queue, raw.content, renewedCopy(raw)),
      )
      const outcomes = await Promise.allSettled(copies)
      page.forEach((raw, i) => {
        if (outcomes[i]?.status === 'fulfilled') this.take(raw)
      })
    }
  }

  /** What wasn't taken is in the queue again when this resolves: the queue answers after that. */
  async giveBack(): Promise<void> {
    if (this.#done) return
    this.#done = true
    try {
      await this.#renew()
      // To get one more goes through the queue itself, behind the acks, which a channel that closes right after them may lose.
      if (this.#took) await this.channel.get(this.queue)
      this.channel.nackAll(true)
      await this.channel.checkQueue(this.queue)
      await closeChannel(this.channel)
    } catch (error) {
      // It all goes back when the channel ends, however it ends.
      if (codeOf(error) === reply.notFound) return
      const typed = toTyped(error, `giving back what was read of '${this.queue}'`)
      if (!(typed instanceof ConnectionError)) throw typed
    }
  }
}

/** Of a message that somebody else put there. */
function foreignFailure(topic: string, group: string, at: number): Failure {
  return {
    reason: 'requested',
    errorName: 'Error',
    errorMessage: 'no record of a failure: another program put it into this queue',
    errorStack: '',
    attempts: 0,
    topic,
    group,
    firstFailedAt: at,
    lastFailedAt: at,
  }
}
