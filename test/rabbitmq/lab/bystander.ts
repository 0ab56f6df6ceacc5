import type { Bus, Subscription } from '@longshore/core'
import { expect, vi } from 'vitest'
import { eventually } from '../../brokers/support.js'
import { gate } from './gate.js'
import { nativeOf } from './lab.js'

/** What the names of its topics begin with. */
export const bystanders = 'bystander'

let count = 0

/**
 * A subscription on a bus on which something else goes wrong. It holds one message the whole time: whoever took its channel away
 * would take that too. Its messages afterwards also are the time in which a loop would show.
 */
export class Bystander {
  readonly topic = `${bystanders}-${++count}`
  readonly #seen: string[] = []
  readonly #revoked: string[] = []
  readonly #handled: string[] = []
  readonly #hold = gate()
  readonly #channels: { calls: unknown[] }[] = []
  subscription!: Subscription

  private constructor(private readonly bus: Bus) {}

  static async on(bus: Bus): Promise<Bystander> {
    const bystander = new Bystander(bus)
    await bystander.#join()
    return bystander
  }

  async #join(): Promise<void> {
    const { bus, topic: name } = this
    const mine = ({ topic }: { topic: string }) => topic === name
    bus.on('revoked', (event) => mine(event) && this.#revoked.push(event.reason))
    bus.on('handled', (event) => mine(event) && this.#handled.push(event.message.id))
    const options = { group: 'watch', concurrency: 2 }
    this.subscription = await bus.subscribe<string>(name, options, async (payload, ctx) => {
      expect(ctx.deliveries).toBe(1)
      this.#seen.push(payload)
      if (payload === 'held') await this.#hold.opened
    })
    await bus.publish(name, 'held', { id: 'held' })
    await eventually(() => this.#seen.length === 1)
    const { publishing, consuming } = nativeOf(bus)
    for (const model of [publishing!, consuming!]) {
      this.#channels.push(vi.spyOn(model, 'createChannel').mock)
      this.#channels.push(vi.spyOn(model, 'createConfirmChannel').mock)
    }
  }

  /** Channels that were opened on this bus since. */
  get channels(): number {
    return this.#channels.reduce((sum, { calls }) => sum + calls.length, 0)
  }

  /** It kept what it held, gets what comes, and nothing goes on in the background. */
  async unharmed(): Promise<void> {
    this.#hold.open()
    await eventually(() => this.#handled.includes('held'))
    const rounds = Array.from({ length: 25 }, (_, n) => `round ${n}`)
    const before = this.channels
    for (const round of rounds) {
      await this.bus.publish(this.topic, round, { id: round })
      await eventually(() => this.#handled.includes(round))
    }
    expect(this.#revoked).toEqual([])
    expect(this.#seen).toEqual(['held', ...rounds])
    expect(this.subscription.state).toBe('running')
    // One may come late; a loop would open many.
    expect(this.channels - before, 'channels opened meanwhile').toBeLessThanOrEqual(1)
  }
}
