import type { Consumption as Api, CloseOptions, CloseReport, Delivery } from '../api.js'
import { closeTimeout } from './close-options.js'
import type { Consumer } from './consumer.js'
import type { Context } from './context.js'
import { HandBack } from './hand-back.js'

/** A delivery that waits here, or is in the loop's hands. */
interface Held {
  readonly context: Context
  readonly giveBack: () => void
}

type Result<T> = IteratorResult<Delivery<T>>

/** `bus.consume`: the runtime's deliveries as an async iterator. Each lasts until its holder settled it. */
export class Consumption<T> implements Api<T> {
  readonly #open: () => Promise<Consumer>
  #queue: Held[] = []
  readonly #inHands = new Map<Context, Held>()
  #waiting: { resolve(result: Result<T>): void; reject(error: unknown): void }[] = []
  #consumer: Promise<Consumer> | undefined
  #over = false
  #failure: { readonly error: unknown } | undefined

  constructor(
    open: (handler: (payload: unknown, context: Context) => Promise<void>) => Promise<Consumer>,
  ) {
    this.#open = () => open((_payload, context) => this.#handle(context))
  }

  #handle(context: Context): Promise<void> {
    return new Promise((resolve, reject) => {
      const giveBack = () => {
        context.onSettled = undefined
        void context.host.handBack([context])
        reject(new HandBack())
      }
      if (this.#over) return giveBack()
      context.onSettled = () => {
        this.#inHands.delete(context)
        this.#queue = this.#queue.filter((held) => held.context !== context)
        resolve()
      }
      const held = { context, giveBack }
      const next = this.#waiting.shift()
      if (next === undefined) this.#queue.push(held)
      else next.resolve(this.#hand(held))
    })
  }

  #hand(held: Held): Result<T> {
    this.#inHands.set(held.context, held)
    return { done: false, value: held.context as unknown as Delivery<T> }
  }

  #start(): Promise<Consumer> {
    this.#consumer ??= this.#open().then((consumer) => {
      // From outside: what the loop works on may be finished, what only waits here goes back.
      consumer.onClosing = () => this.#end()
      consumer.done.then(
        () => this.#end(),
        (error) => {
          this.#failure = { error }
          this.#end()
        },
      )
      return consumer
    })
    return this.#consumer
  }

  #giveUp(held: Held): void {
    this.#inHands.delete(held.context)
    held.giveBack()
  }

  #end(): void {
    this.#over = true
    for (const held of this.#queue.splice(0)) held.giveBack()
    for (const next of this.#waiting.splice(0)) {
      if (this.#failure !== undefined) next.reject(this.#failure.error)
      else next.resolve({ done: true, value: undefined })
    }
  }

  [Symbol.asyncIterator](): AsyncIterator<Delivery<T>> {
    return {
      next: async () => {
        // Who asks for the next is done with those that were taken away meanwhile, settled or not.
        for (const held of [...this.#inHands.values()]) {
          if (held.context.revoked) this.#giveUp(held)
        }
        if (!this.#over) await this.#start()
        for (let held = this.#queue.shift(); held !== undefined; held = this.#queue.shift()) {
          if (!held.context.revoked) return this.#hand(held)
          // Taken away while it waited here.
          held.giveBack()
        }
        if (this.#failure !== undefined) throw this.#failure.error
        if (this.#over) return { done: true, value: undefined }
        return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }))
      },
      // The loop was left: what it took and didn't settle goes back at once.
      return: async () => {
        await this.close()
        return { done: true, value: undefined }
      },
    }
  }

  async close(options: CloseOptions = {}): Promise<CloseReport> {
    const timeoutMs = closeTimeout(options)
    this.#end()
    for (const held of [...this.#inHands.values()]) this.#giveUp(held)
    const consumer = await this.#consumer?.catch(() => undefined)
    return consumer?.close({ timeout: timeoutMs }) ?? { drained: true, abandoned: 0 }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}
