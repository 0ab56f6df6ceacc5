import type { WireMessage } from '../message.js'

/** Bodies that are kept at most, in bytes, whatever their number. */
const maxBytes = 16 * 1024 * 1024

/** The latest messages of a topic, for groups to come: a ring without garbage. */
export class Retained {
  readonly #messages: (WireMessage | undefined)[]
  readonly #routes: (string | undefined)[]
  readonly #storedAt: Float64Array
  readonly #max: number
  #first = 0
  #size = 0
  #bytes = 0

  constructor(max: number) {
    this.#max = max
    this.#messages = new Array(max)
    this.#routes = new Array(max)
    this.#storedAt = new Float64Array(max)
  }

  add(message: WireMessage, route: string | undefined, storedAt: number): void {
    if (this.#max === 0) return
    if (this.#size === this.#max) this.#drop()
    const at = (this.#first + this.#size) % this.#max
    this.#messages[at] = message
    this.#routes[at] = route
    this.#storedAt[at] = storedAt
    this.#size++
    this.#bytes += message.body.byteLength
    while (this.#bytes > maxBytes && this.#size > 0) this.#drop()
  }

  #drop(): void {
    this.#bytes -= this.#messages[this.#first]!.body.byteLength
    this.#messages[this.#first] = undefined
    this.#first = (this.#first + 1) % this.#max
    this.#size--
  }

  /** Those that were stored at this time or later, oldest first. */
  *since(time: number): Iterable<{ message: WireMessage; route: string | undefined }> {
    for (let i = 0; i < this.#size; i++) {
      const at = (this.#first + i) % this.#max
      if (this.#storedAt[at]! < time) continue
      yield { message: this.#messages[at]!, route: this.#routes[at] }
    }
  }
}
