import {
  ConnectionError,
  type DeadLetterSelection,
  type Failure,
  NotFoundError,
  type StoredDeadLetter,
} from '@longshore/core'
import { type DeadLetterAccess, decodeFailure } from '@longshore/core/driver'
import type { Channel, GetMessage } from 'amqplib'
import { type Link, watch } from './connection.js'
import { codeOf, reply, toTyped } from './errors.js'
import type { Publisher } from './publisher.js'
import type { Settings } from './settings.js'
import type { Topology } from './topology.js'
import { messageOf, redrivenCopy } from './wire.js'

/** Letters that are taken, copied and then let go of together. */
const pageSize = 100

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
      for (let raw = await reader.next(); raw; raw = await reader.next()) {
        yield this.#letterOf(topic, group, raw)
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
        if (outcomes[i]?.status === 'fulfilled') reader.channel.ack(raw)
      })
      const failed = outcomes.find((outcome) => outcome.status === 'rejected')
      if (failed !== undefined) throw failed.reason
    })
  }

  discard(topic: string, group: string, selection: DeadLetterSelection): Promise<number> {
    return this.#each(topic, group, selection, async (page, reader) => {
      for (const raw of page) reader.channel.ack(raw)
    })
  }

  async #each(
    topic: string,
    group: string,
    { ids, match, limit = Number.POSITIVE_INFINITY, signal }: DeadLetterSelection,
    take: (page: readonly GetMessage[], reader: Reader) => Promise<void>,
  ): Promise<number> {
    if (limit === 0) return 0
    const reader = await this.#open(topic, group)
    let taken = 0
    try {
      for (let more = true; more; ) {
        const page: GetMessage[] = []
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

  #letterOf(topic: string, group: string, raw: GetMessage): StoredDeadLetter {
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
  constructor(
    readonly channel: Channel,
    private readonly queue: string,
  ) {}

  async next(): Promise<GetMessage | undefined> {
    try {
      return (await this.channel.get(this.queue)) || undefined
    } catch (error) {
      if (codeOf(error) === reply.notFound) return undefined
      throw toTyped(error, `reading the queue '${this.queue}'`)
    }
  }

  /** What wasn't acknowledged is in the queue again when this resolves: the broker answers after that. */
  async giveBack(): Promise<void> {
    try {
      this.channel.nackAll(true)
      await this.channel.checkQueue(this.queue)
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
