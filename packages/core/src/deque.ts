/** A ring buffer that grows: push and shift at both ends in constant time, without garbage. */
export class Deque<T> {
  #items: (T | undefined)[] = new Array(16)
  #head = 0
  #size = 0

  get size(): number {
    return this.#size
  }

  push(item: T): void {
    if (this.#size === this.#items.length) this.#grow()
    this.#items[(this.#head + this.#size) & (this.#items.length - 1)] = item
    this.#size++
  }

  unshift(item: T): void {
    if (this.#size === this.#items.length) this.#grow()
    this.#head = (this.#head - 1) & (this.#items.length - 1)
    this.#items[this.#head] = item
    this.#size++
  }

  shift(): T | undefined {
    if (this.#size === 0) return undefined
    const item = this.#items[this.#head]
    this.#items[this.#head] = undefined
    this.#head = (this.#head + 1) & (this.#items.length - 1)
    this.#size--
    // A backlog that is gone should not keep its memory.
    if (this.#size === 0 && this.#items.length > 1024) {
      this.#items = new Array(16)
      this.#head = 0
    }
    return item
  }

  peek(): T | undefined {
    return this.#items[this.#head]
  }

  /** Takes everything out, first to last. */
  drain(): T[] {
    const all: T[] = []
    for (let item = this.shift(); item !== undefined; item = this.shift()) all.push(item)
    return all
  }

  *[Symbol.iterator](): Iterator<T> {
    for (let i = 0; i < this.#size; i++) {
      yield this.#items[(this.#head + i) & (this.#items.length - 1)] as T
    }
  }

  #grow(): void {
    const old = this.#items
    const items: (T | undefined)[] = new Array(old.length * 2)
    for (let i = 0; i < this.#size; i++) items[i] = old[(this.#head + i) & (old.length - 1)]
    this.#items = items
    this.#head = 0
  }
}
