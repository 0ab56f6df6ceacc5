import type { Consumption as Api, CloseOptions, CloseReport, Delivery } from '../api.js'
import type { Consumer } from './consumer.js'
import type { Context } from './context.js'
import { HandBack } from './hand-back.js'

interface Handed {
  readonly context: Context
  giveBack(): void
}

/** `bus.consume`: the runtime's deliveries as an async iterator. Each lasts until its holder settled it. */
export class Consumption<T> implements Api<T> {
  readonly #open: () => Promise<Consumer>
  readonly #queue: Context[] = []
  readonly #handed = new Map<Context, Handed>()
  #waiting: ((result: IteratorResult<Delivery<T>>) => void)[] = []
  #consumer: Promise<Consumer> | undefined
  #closed = false
  #failure: { readonly error: unknown } | undefined

  constructor(
    open: (handler: (payload: unknown, context: Context) => Promise<void>) => Promise<Consumer>,
  ) {
    this.#open = () => open((_payload, context) => this.#handle(context))
  }

  #handle(context: Context): Promise<void> {
    return new Promise((resolve, reject) => {
      const giveBack = () => {
        this.#handed.delete(context)
        reject(new HandBack())
      }
      if (this.#closed) return giveBack()
      context.onSettled = () => {
        this.#handed.delete(context)
        resolve()
      }
      this.#handed.set(context, { context, giveBack })
      const next = this.#waiting.shift()
      if (next !== undefined) next({ done: false, value: context as unknown as Delivery<T> })
      else this.#queue.push(context)
    })
  }

  #start(): Promise<Consumer> {
    this.#consumer ??= this.#open().then((consumer) => {
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

  /** Ends the loop and gives back what nobody has settled. */
  #end(): void {
    this.#closed = true
    this.#queue.length = 0
    for (const handed of [...this.#handed.values()]) handed.giveBack()
    for (const next of this.#waiting.splice(0)) next({ done: true, value: undefined })
  }

  [Symbol.asyncIterator](): AsyncIterator<Delivery<T>> {
    return {
      next: async () => {
        if (!this.#closed) await this.#start()
        for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
          if (!next.revoked) return { done: false, value: next as unknown as Delivery<T> }
          // Taken away while it waited here.
          this.#handed.get(next)?.giveBack()
        }
        if (this.#failure !== undefined) throw this.#failure.error
        if (this.#closed) return { done: true, value: undefined }
        return new Promise((resolve) => this.#waiting.push(resolve))
      },
      return: async () => {
        await this.close()
        return { done: true, value: undefined }
      },
    }
  }

  async close(options: CloseOptions = {}): Promise<CloseReport> {
    this.#end()
    if (this.#consumer === undefined) return { drained: true, abandoned: 0 }
    const consumer = await this.#consumer.catch(() => undefined)
    return consumer?.close(options) ?? { drained: true, abandoned: 0 }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}
