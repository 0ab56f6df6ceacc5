import type { Settings } from '../session.js'

/** Runs a task for each item, at most `limit` at once, in the order in which they were added. */
class Workers<T> {
  readonly #waiting: T[] = []
  readonly #limit: number
  readonly #task: (item: T) => Promise<void>
  #running = 0

  constructor(limit: number, task: (item: T) => Promise<void>) {
    this.#limit = limit
    this.#task = task
  }

  add(item: T): void {
    if (this.#running < this.#limit) void this.#work(item)
    else this.#waiting.push(item)
  }

  async #work(first: T): Promise<void> {
    this.#running++
    for (let item: T | undefined = first; item !== undefined; item = this.#waiting.shift()) {
      await this.#task(item)
    }
    this.#running--
  }
}

/**
 * What an application writes around a client that only pushes messages: so many handlers at once, or one at a time for each
 * key. It holds no more than the client's prefetch.
 */
export function workersOf<T>(
  { order, concurrency }: Settings,
  task: (item: T) => Promise<void>,
): (item: T, key: string) => void {
  if (order === 'none') {
    const workers = new Workers(concurrency, task)
    return (item) => workers.add(item)
  }
  const byKey = new Map<string, Workers<T>>()
  return (item, key) => {
    let workers = byKey.get(key)
    if (workers === undefined) {
      workers = new Workers(1, task)
      byKey.set(key, workers)
    }
    workers.add(item)
  }
}
