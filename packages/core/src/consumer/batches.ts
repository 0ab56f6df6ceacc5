import type { BatchContext, BatchHandler } from '../api.js'
import type { Clock, Timer } from '../clock.js'
import { OptionError } from '../errors.js'
import type { Message } from '../message.js'
import { limited } from '../middleware/timeout.js'
import type { Context } from './context.js'
import { HandBack } from './hand-back.js'
import type { Settings } from './settings.js'

/** A delivery that waits for its batch, and how to tell what became of it. */
interface Member {
  readonly context: Context
  resolve(): void
  reject(error: unknown): void
}

/**
 * Gathers single deliveries into batches. Each delivery's own handler call lasts until its batch was handled, so that retry,
 * dead letters, order and draining are those of single messages.
 */
export class Batches {
  readonly #size: number
  readonly #waitMs: number
  readonly #concurrency: number
  #gathering: Member[] = []
  #running = 0
  #due = false
  #timer: Timer | undefined
  #closing = false

  constructor(
    private readonly handler: BatchHandler<unknown>,
    private readonly settings: Settings,
    private readonly clock: Clock,
  ) {
    const { size, waitMs, concurrency } = settings.batch!
    this.#size = size
    this.#waitMs = waitMs
    this.#concurrency = concurrency
  }

  readonly add = (_payload: unknown, context: Context): Promise<void> =>
    new Promise((resolve, reject) => {
      if (this.#closing) {
        void context.host.handBack([context])
        return reject(new HandBack())
      }
      this.#gathering.push({ context, resolve, reject })
      if (this.#gathering.length === 1) this.#startWaiting()
      this.#run()
    })

  /** What gathers now becomes a batch after `batchWait`, full or not. */
  #startWaiting(): void {
    this.#timer = this.clock.setTimer(() => {
      this.#due = true
      this.#run()
    }, this.#waitMs)
  }

  /** Hands back what waits for a batch; batches that run go on. */
  close(): void {
    this.#closing = true
    this.#timer?.cancel()
    const unstarted = this.#gathering.splice(0)
    void unstarted[0]?.context.host.handBack(unstarted.map((member) => member.context))
    for (const member of unstarted) member.reject(new HandBack())
  }

  #run(): void {
    while (this.#running < this.#concurrency && this.#gathering.length > 0) {
      if (!this.#due && this.#gathering.length < this.#size) return
      const batch = this.#gathering.splice(0, this.#size)
      this.#timer?.cancel()
      this.#due = false
      if (this.#gathering.length > 0) this.#startWaiting()
      this.#running++
      void this.#runBatch(batch)
    }
  }

  async #runBatch(batch: readonly Member[]): Promise<void> {
    const alive = batch.filter((member) => !member.context.revoked)
    for (const member of batch) if (member.context.revoked) member.resolve()
    if (alive.length > 0) await this.#handle(alive)
    this.#running--
    this.#run()
  }

  async #handle(batch: readonly Member[]): Promise<void> {
    const failures = new Map<number, unknown>()
    const first = batch[0]!.context
    const messages = batch.map((member) => member.context.message)
    const context: BatchContext = {
      messages: messages as readonly Message[],
      topic: first.topic,
      group: first.group,
      signal: AbortSignal.any(batch.map((member) => member.context.signal)),
      publish: first.host.publish,
      fail(index, error) {
        if (!(index in batch)) {
          throw new OptionError(
            `fail(${index}): the batch has the messages 0 to ${batch.length - 1}`,
          )
        }
        failures.set(index, error)
      },
    }
    let thrown: { readonly error: unknown } | undefined
    try {
      await this.#call(
        batch.map((member) => member.context),
        context,
      )
    } catch (error) {
      thrown = { error }
    }
    batch.forEach((member, index) => {
      if (failures.has(index)) member.reject(failures.get(index))
      else if (thrown !== undefined) member.reject(thrown.error)
      else member.resolve()
    })
  }

  #call(contexts: readonly Context[], context: BatchContext): Promise<void> {
    const { marker } = contexts[0]!.host
    const call = {
      [marker]: async () => {
        await this.handler(
          contexts.map((each) => each.payload),
          context,
        )
      },
    }
    const { timeoutMs, spec } = this.settings
    const result = call[marker]!()
    return timeoutMs === undefined
      ? result
      : limited(contexts, result, timeoutMs, spec.order === 'key')
  }
}
