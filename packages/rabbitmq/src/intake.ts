import { type Clock, ConnectionError, NotFoundError, type Timer } from '@longshore/core'
import type { Channel, ConsumeMessage } from 'amqplib'
import { Acks } from './acks.js'
import { closeChannel, type Link, watch } from './connection.js'
import { isFinal, isLost, toTyped } from './errors.js'
import { Unseen } from './unseen.js'
import { Delivery } from './wire.js'

/** Pauses before a lost channel is opened anew, in milliseconds. */
const firstPause = 10
const longestPause = 5000
/** A channel that lived so long was no failure. */
const healthyMs = 2000
/**
 * Milliseconds before a deleted queue is declared and consumed again: RabbitMQ 3.10 knows it by its name, and when the old one's
 * process dies a moment later, the channel takes that for the new one's end and passes nothing on (seen in 5 of 5 tries).
 */
export const afterDeletion = 1000

/** How often a queue that was declared and isn't there is declared again: somebody may be deleting it. */
const mostDeclares = 5

export interface IntakeHost {
  readonly link: Link
  readonly clock: Clock
  readonly topic: string
  readonly autoCreate: boolean
  readonly prefetch: number
  /** Sees to the queue; called before each opening. */
  prepare(): Promise<void>
  /** Whether messages are wanted now. */
  wanted(): boolean
  opened(intake: Intake): void
  /** Something is in the buffer. */
  arrived(): void
  /** Those in the core's hands are gone. */
  revoke(deliveries: readonly Delivery[], reason: string): void
  /** The queue was deleted, or its leader went: what was declared may be gone. */
  missing(): void
  /** It can't be opened again. */
  fail(error: unknown): void
}

/**
 * The consumer of one queue, on a channel of its own. The broker takes back all that is unsettled whenever the channel ends; settling
 * it later does nothing, as it belongs to a channel that is gone.
 */
export class Intake {
  /** Delivered by the broker, not yet passed on. */
  readonly buffer: Delivery[] = []
  readonly unseen = new Unseen()
  /** In the core's hands. */
  readonly held = new Set<Delivery>()
  /** The broker delivers here: for a partition, that this member is the active one. */
  active = false
  /** It is to be given up as soon as nothing of it is in hands; until then nothing more is taken from it. */
  yielding = false
  /** It couldn't be given up in time. */
  busy = false
  #channel: Channel | undefined
  #acks: Acks | undefined
  #tag: string | undefined
  #opening = false
  /** It is not to come back. */
  #ended = false
  #openedAt = 0
  #failures = 0
  #pause: Timer | undefined
  /** A delivery came since the last check. */
  #heard = false
  #suspicions = 0

  constructor(
    readonly queue: string,
    private readonly host: IntakeHost,
  ) {}

  get isOpen(): boolean {
    return this.#channel !== undefined && !this.#opening
  }

  /**
   * Opens it, as often as that is worth a try.
   * @throws AccessError, ConflictError, NotFoundError
   */
  async open(): Promise<void> {
    if (this.#opening || this.#channel !== undefined) return
    for (let failures = 0; !this.#ended; failures++) {
      try {
        return await this.#open()
      } catch (error) {
        if (this.#ended) return
        if (!this.#worthAnotherTry(error, failures)) throw error
        if (error instanceof NotFoundError) this.host.missing()
        await new Promise<void>((resolve) => {
          this.#pause = this.host.clock.setTimer(resolve, pauseAfter(failures))
        })
      }
    }
  }

  #worthAnotherTry(error: unknown, failures: number): boolean {
    if (error instanceof NotFoundError) return this.host.autoCreate && failures < mostDeclares
    return isLost(error) || !isFinal(error)
  }

  async #open(): Promise<void> {
    const { link, clock, prefetch } = this.host
    this.#opening = true
    try {
      const model = await link.whenUp()
      await this.host.prepare()
      if (this.#ended) return
      const channel = await model.createChannel()
      watch(channel, (error) => this.#lost(channel, error?.message ?? 'the connection ended'))
      if (this.#ended) return void closeChannel(channel)
      this.#channel = channel
      this.#acks = new Acks(channel)
      this.#openedAt = clock.now()
      await channel.prefetch(prefetch, false)
      if (this.host.wanted()) await this.#consume(channel)
      // It may have ended in the same packet that said yes.
      if (this.#channel !== channel) throw new ConnectionError('the channel ended at once')
    } catch (error) {
      const channel = this.#channel
      this.#channel = undefined
      if (channel !== undefined) void closeChannel(channel)
      throw toTyped(error, `consuming from the queue '${this.queue}'`)
    } finally {
      this.#opening = false
    }
    // What is wanted may have changed meanwhile.
    this.host.opened(this)
  }

  async #consume(channel: Channel): Promise<void> {
    const { consumerTag } = await channel.consume(this.queue, (message) =>
      this.#incoming(channel, message),
    )
    this.#tag = consumerTag
  }

  #incoming(channel: Channel, message: ConsumeMessage | null): void {
    if (this.#channel !== channel) return
    if (message === null) {
      this.host.missing()
      this.#lost(
        channel,
        'the broker cancelled the consumer: its queue was deleted, or moved',
        true,
      )
      void closeChannel(channel)
      return
    }
    this.active = true
    this.#heard = true
    this.#acks?.opened()
    this.buffer.push(new Delivery(this.host.topic, this, message))
    this.host.arrived()
  }

  #lost(channel: Channel, reason: string, deleted = false): void {
    if (this.#channel !== channel) return
    this.#forget()
    const lost = [...this.held]
    this.held.clear()
    if (lost.length > 0) this.host.revoke(lost, `the channel was lost: ${reason}`)
    // While it is being opened, whoever opens it hears of the failure.
    if (!this.#opening) this.#comeBack(deleted ? afterDeletion : 0)
  }

  /**
   * To be called now and then. A consumer that gets nothing twice in a row, though its queue has messages, is begun anew: the broker
   * may have forgotten it (3.10 does, when a queue is deleted and made again). `count` tells how many messages wait.
   */
  async check(count: () => Promise<number>): Promise<void> {
    const idle = this.isOpen && this.#tag !== undefined && !this.#heard && this.held.size === 0
    this.#heard = false
    if (!idle || (await count()) === 0 || this.#heard) {
      this.#suspicions = 0
      return
    }
    if (++this.#suspicions < 2) return
    this.#suspicions = 0
    await this.giveUp(true)
  }

  #forget(): void {
    this.#channel = undefined
    this.#tag = undefined
    this.active = false
    this.yielding = false
    this.busy = false
    this.unseen.add(this.buffer.splice(0))
  }

  #comeBack(atLeast = 0): void {
    const { clock } = this.host
    if (this.#ended) return
    if (clock.now() - this.#openedAt > healthyMs) this.#failures = 0
    this.#pause?.cancel()
    this.#pause = clock.setTimer(
      () => {
        this.open().catch((error) => {
          if (!this.#ended) this.host.fail(error)
        })
      },
      Math.max(atLeast, pauseAfter(this.#failures++)),
    )
  }

  // --- Settling ---

  /** False if it is no longer ours. */
  ack(delivery: Delivery): boolean {
    if (!this.held.delete(delivery)) return false
    this.#acks?.ack(delivery.tag)
    return true
  }

  requeue(delivery: Delivery): void {
    this.unseen.add([delivery])
    this.held.delete(delivery)
    try {
      this.#acks?.requeue(delivery.tag)
    } catch {
      // The channel is closing, which returns it, too.
    }
  }

  /** Back to where it was, in the order of the queue. */
  putBack(delivery: Delivery): void {
    if (!this.held.delete(delivery)) return
    this.buffer.push(delivery)
    this.buffer.sort((a, b) => a.tag - b.tag)
  }

  // --- Ending ---

  /** Stops and starts the consumer, the channel stays. */
  async setConsuming(wanted: boolean): Promise<void> {
    const channel = this.#channel
    if (channel === undefined || this.#opening) return
    const tag = this.#tag
    try {
      if (wanted && tag === undefined) await this.#consume(channel)
      if (!wanted && tag !== undefined) {
        this.#tag = undefined
        await channel.cancel(tag)
      }
    } catch {
      // The channel ended meanwhile.
    }
  }

  /** To the end of the line: the next member gets the partition, and what is unsettled of it. */
  async giveUp(reopen: boolean): Promise<void> {
    const channel = this.#channel
    if (channel === undefined) return
    const acks = this.#acks
    this.#forget()
    await finish(channel, acks, this.queue)
    if (reopen) this.#comeBack()
  }

  reopen(): void {
    if (this.#channel === undefined && !this.#opening) this.#comeBack()
  }

  async close(): Promise<void> {
    this.#ended = true
    this.#pause?.cancel()
    await this.giveUp(false)
  }
}

/**
 * The server's end of a channel holds back acks for a quorum queue when many are under way, and drops them when the channel is closed.
 * To start and cancel a consumer goes through the queue itself, after them. (Tried on 3.10.8 and 4.0.5: without it up to 95 of 128 acked
 * messages came again, with it none. Behind a single active consumer it gets nothing; else one message at most, which goes back.)
 */
async function finish(channel: Channel, acks: Acks | undefined, queue: string): Promise<void> {
  try {
    acks?.flush()
    if (acks?.used) {
      await channel.prefetch(1, false)
      const { consumerTag } = await channel.consume(queue, () => {})
      await channel.cancel(consumerTag)
    }
    await closeChannel(channel)
  } catch {
    // It is closed already.
  }
}

function pauseAfter(failures: number): number {
  return Math.min(longestPause, firstPause * 2 ** Math.min(failures, 10))
}
