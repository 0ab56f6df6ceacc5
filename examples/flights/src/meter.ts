import type { Bus } from '@longshore/core'

/** What the bus said about one group. */
export class GroupMeter {
  handled = 0
  failed = 0
  retried = 0
  redriven = 0
  /** Milliseconds from publish to handled, retries and redrive included. */
  readonly latencies: number[] = []
  /** Ids: a repeat of the same dead letter counts once. */
  readonly invalid = new Set<string>()
  readonly exhausted = new Set<string>()

  get deadLettered(): number {
    return this.invalid.size + this.exhausted.size
  }
}

/** Counts by listening to the events of a bus, so that it measures what users could measure. */
export class Meter {
  readonly groups = new Map<string, GroupMeter>()
  /** Confirmed messages of each topic. */
  readonly published = new Map<string, number>()
  readonly #sentAt = new Map<string, number>()

  constructor(bus: Bus, groups: readonly string[]) {
    for (const group of groups) this.groups.set(group, new GroupMeter())
    bus.on('published', ({ message: { topic } }) => {
      this.published.set(topic, (this.published.get(topic) ?? 0) + 1)
    })
    bus.on('handled', ({ group, message }) => {
      const meter = this.groups.get(group)
      if (meter === undefined) return
      meter.handled++
      const start = this.#sentAt.get(message.id)
      if (start !== undefined) meter.latencies.push(performance.now() - start)
    })
    bus.on('failed', ({ group }) => {
      this.of(group).failed++
    })
    bus.on('retried', ({ group }) => {
      this.of(group).retried++
    })
    bus.on('dead-lettered', ({ group, message, reason }) => {
      const meter = this.of(group)
      if (reason === 'exhausted') meter.exhausted.add(message.id)
      else meter.invalid.add(message.id)
    })
    bus.on('redriven', ({ group, count }) => {
      this.of(group).redriven += count
    })
  }

  /** To be called when a message is handed to the bus. */
  publishing(id: string): void {
    this.#sentAt.set(id, performance.now())
  }

  of(group: string): GroupMeter {
    const meter = this.groups.get(group)
    if (meter === undefined) throw new Error(`no meter for the group ${group}`)
    return meter
  }
}
