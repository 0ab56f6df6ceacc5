import {
  ConnectionError,
  type DeadLetterSelection,
  type Failure,
  NotFoundError,
  type StoredDeadLetter,
} from '@longshore/core'
import { type DeadLetterAccess, decodeFailure } from '@longshore/core/driver'
import type { Channel, Message } from 'amqplib'
import { tagged } from './acks.js'
import { type Link, watch } from './connection.js'
import { codeOf, reply, toTyped } from './errors.js'
import type { Publisher } from './publisher.js'
import type { Settings } from './settings.js'
import { inOrder } from './subscription.js'
import type { Topology } from './topology.js'
import { messageOf, redrivenCopy } from './wire.js'

/** Letters that are taken, copied and then let go of together; no more, so that a crash leaves the others in order. */
const pageSize = inOrder

/** A listing that fits into these holds no letter while it is looked at. */
const snapshotLetters = 10_000
const snapshotBytes = 32 * 1024 * 1024

/**
 * Dead letters lie in a queue of their own. Looking at them takes each from the queue without acknowledging it, oldest first,
 * and gives all back at the end: meanwhile others don't see them.
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
      for (let more = true; more; ) {
        const page: Message[] = []
        for (let bytes = 0; page.length < snapshotLetters && bytes < snapshotBytes; ) {
          const raw = await reader.next()
          more = raw !== undefined
          if (raw === undefined) break
          page.push(raw)
          bytes += raw.content.length
        }
        // So that whoever looks may redrive and discard at the same time.
        if (!more) await reader.giveBack()
        for (const raw of page) yield this.#letterOf(topic, group, raw)
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
    let taken = 0
    try {
      for (let more = true; more; ) {
        const page: Message[] = []
        while (page.length < pageSize && taken + page.length < limit && !signal?.aborted) {
          const raw = await reader.next()
          more = raw !== undefined
          if (raw === undefined) break
          if (ids !== undefined && !ids.has(raw.properties.messageId)) continue
          if (match !== undefined && !match(this.#letterOf(topic, group, raw))) continue
          page.push(raw)
        }
        if (page.length > 0) await take(page, reader)
        taken += page.length
        if (taken >= limit || signal?.aborted) more = false
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
    return new Reader(
      watch(await model.createChannel(), () => {}),
      queue,
    )
  }
}

class Reader {
  readonly #held = new Set<number>()
  #done = false

  constructor(
    private readonly channel: Channel,
    private readonly queue: string,
  ) {}

  async next(): Promise<Message | undefined> {
    try {
      const raw = await this.channel.get(this.queue)
      if (!raw) return undefined
      this.#held.add(raw.fields.deliveryTag)
      return raw
    } catch (error) {
      if (codeOf(error) === reply.notFound) return undefined
      throw toTyped(error, `reading the queue '${this.queue}'`)
    }
  }

  take({ fields }: Message): void {
    this.#held.delete(fields.deliveryTag)
    this.channel.ack(tagged(fields.deliveryTag))
  }

  /**
   * What wasn't acknowledged is in the queue again when this resolves, in order: in portions that the queue keeps in order, each
   * waited for.
   */
  async giveBack(): Promise<void> {
    if (this.#done) return
    this.#done = true
    try {
      const left = [...this.#held]
      for (let at = 0; at < left.length; at += inOrder) {
        for (const tag of left.slice(at, at + inOrder)) this.channel.nack(tagged(tag), false, true)
        await this.channel.checkQueue(this.queue)
      }
      await this.channel.close()
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
