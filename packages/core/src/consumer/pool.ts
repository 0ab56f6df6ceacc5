import type { Context } from './context.js'

/** The deliveries that run now. */
export class Pool {
  readonly #running: Context[] = []
  #whenEmpty: (() => void) | undefined

  get size(): number {
    return this.#running.length
  }

  add(context: Context): void {
    context.slot = this.#running.length
    this.#running.push(context)
  }

  remove(context: Context): void {
    const last = this.#running.pop()!
    if (last !== context) {
      this.#running[context.slot] = last
      last.slot = context.slot
    }
    if (this.#running.length === 0) this.#whenEmpty?.()
  }

  empty(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenEmpty = resolve
      if (this.#running.length === 0) resolve()
    })
  }

  [Symbol.iterator](): Iterator<Context> {
    return this.#running[Symbol.iterator]()
  }
}
