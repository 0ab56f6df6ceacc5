import type { PublishFailure } from '@longshore/core/driver'

/** One message that the broker has not confirmed yet. */
export class Unconfirmed {
  /** Why the broker returned it. */
  returned: string | undefined = undefined

  constructor(
    readonly exchange: string,
    readonly routingKey: string,
    readonly id: string,
    readonly bytes: number,
    readonly settle: (index: number, failure?: PublishFailure) => void,
    readonly index: number,
  ) {}
}

/** The messages that wait for their confirmation, by delivery tag: a channel counts them from 1. */
export class UnconfirmedWindow {
  #items: (Unconfirmed | undefined)[] = []
  /** Index of the first that may be open, and its tag. */
  #head = 0
  #tag = 1
  #open = 0

  get size(): number {
    return this.#open
  }

  /** The tag that the next one gets. */
  get nextTag(): number {
    return this.#tag + this.#items.length - this.#head
  }

  push(item: Unconfirmed): void {
    this.#items.push(item)
    this.#open++
  }

  /** Takes the one with this tag out, or all up to it, in order. */
  take(tag: number, multiple: boolean, each: (item: Unconfirmed) => void): void {
    const end = this.#head + tag - this.#tag
    for (let at = multiple ? this.#head : end; at <= end; at++) {
      const item = this.#items[at]
      if (item === undefined) continue
      this.#items[at] = undefined
      this.#open--
      each(item)
    }
    this.#advance()
  }

  #advance(): void {
    while (this.#head < this.#items.length && this.#items[this.#head] === undefined) {
      this.#head++
      this.#tag++
    }
    if (this.#head === this.#items.length) {
      this.#items.length = 0
      this.#head = 0
    } else if (this.#head >= 4096) {
      this.#items.splice(0, this.#head)
      this.#head = 0
    }
  }

  /** 0 if it is not open. */
  tagOf(item: Unconfirmed | undefined): number {
    const at = item === undefined ? -1 : this.#items.indexOf(item, this.#head)
    return at < 0 ? 0 : this.#tag + at - this.#head
  }

  /** Takes all out, oldest first. */
  drain(): Unconfirmed[] {
    const all = [...this]
    this.#items.length = 0
    this.#head = 0
    this.#open = 0
    return all
  }

  /** Those that are open, oldest first. */
  *[Symbol.iterator](): Iterator<Unconfirmed> {
    for (let at = this.#head; at < this.#items.length; at++) {
      const item = this.#items[at]
      if (item !== undefined) yield item
    }
  }
}
