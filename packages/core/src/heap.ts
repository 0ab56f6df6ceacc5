/** A binary heap: the smallest item, by `less`, comes out first. */
export class Heap<T> {
  readonly #items: T[] = []
  readonly #less: (a: T, b: T) => boolean

  constructor(less: (a: T, b: T) => boolean) {
    this.#less = less
  }

  get size(): number {
    return this.#items.length
  }

  peek(): T | undefined {
    return this.#items[0]
  }

  push(item: T): void {
    const items = this.#items
    let at = items.length
    items.push(item)
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!this.#less(item, items[parent]!)) break
      items[at] = items[parent]!
      at = parent
    }
    items[at] = item
  }

  pop(): T | undefined {
    const items = this.#items
    const first = items[0]
    const last = items.pop()
    if (items.length === 0 || last === undefined) return first
    let at = 0
    for (;;) {
      let child = at * 2 + 1
      if (child >= items.length) break
      if (child + 1 < items.length && this.#less(items[child + 1]!, items[child]!)) child++
      if (!this.#less(items[child]!, last)) break
      items[at] = items[child]!
      at = child
    }
    items[at] = last
    return first
  }

  /** Removes the items that match; returns them. Linear. */
  remove(match: (item: T) => boolean): T[] {
    const removed = this.#items.filter(match)
    if (removed.length === 0) return removed
    const kept = this.#items.filter((item) => !match(item))
    this.#items.length = 0
    for (const item of kept) this.push(item)
    return removed
  }

  *[Symbol.iterator](): Iterator<T> {
    yield* this.#items
  }
}
