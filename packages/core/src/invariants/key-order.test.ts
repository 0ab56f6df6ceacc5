import { describe, expect, it } from 'vitest'
import type { SubscribeOptions } from '../api.js'
import type { MemoryOptions } from '../memory/options.js'
import { createTestBus, type TestBus, VirtualClock } from '../testing/index.js'

interface Item {
  readonly key: string
  readonly n: number
}

/** A generator of reproducible numbers (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Watches what handlers do, and finds breaks of the order of a key. */
class Watch {
  readonly breaks: string[] = []
  /** Key to the number of the message that has been handled last, all before it included. */
  readonly handled = new Map<string, number>()
  #running: { readonly key: string; readonly member: string }[] = []

  start({ key, n }: Item, member = ''): void {
    const before = this.handled.get(key) ?? -1
    if (n > before + 1) this.breaks.push(`${key}: ${n} began before ${before + 1} was handled`)
    if (this.#running.some((other) => other.key === key)) {
      this.breaks.push(`${key}: ${n} began while another one ran`)
    }
    this.#running.push({ key, member })
  }

  end({ key }: Item, member = ''): void {
    this.#running.splice(
      this.#running.findIndex((other) => other.key === key && other.member === member),
      1,
    )
  }

  success({ key, n }: Item): void {
    this.handled.set(key, Math.max(n, this.handled.get(key) ?? -1))
  }

  /** Its process is gone, and its handlers with it. */
  crashed(member: string): void {
    this.#running = this.#running.filter((other) => other.member !== member)
  }
}

async function publishAll(bus: TestBus, keys: number, each: number): Promise<void> {
  for (let n = 0; n < each; n++) {
    for (let k = 0; k < keys; k++) {
      const key = `k${k}`
      await bus.publish('orders', { key, n }, { key })
    }
  }
}

const modes: { mode: string; memory: MemoryOptions }[] = [
  { mode: 'held by the broker', memory: {} },
  { mode: '8 partitions, held in the process', memory: { partitions: 8 } },
]
const ordered = { group: 'billing', order: 'key', concurrency: 8 } satisfies SubscribeOptions

for (const { mode, memory } of modes) {
  describe(`invariant 6: the order of keys (${mode})`, () => {
    it('runs one delivery of a key at a time, in order, with several keys at once', async () => {
      await using bus = await createTestBus({ memory })
      const watch = new Watch()
      let running = 0
      let most = 0
      await bus.subscribe<Item>('orders', ordered, async (item) => {
        watch.start(item)
        most = Math.max(most, ++running)
        await new Promise<void>((resolve) => bus.clock.setTimer(resolve, 10))
        running--
        watch.success(item)
        watch.end(item)
      })
      await publishAll(bus, 8, 10)
      await bus.handled({ count: 80 })
      expect(watch.breaks.slice(0, 3)).toEqual([])
      expect(most).toBeGreaterThan(4)
      expect(most).toBeLessThanOrEqual(8)
    })

    it('keeps later messages behind a failing one until it succeeds (block)', async () => {
      await using bus = await createTestBus({ memory })
      const watch = new Watch()
      const attempts: number[] = []
      await bus.subscribe<Item>('orders', ordered, (item, { attempt }) => {
        watch.start(item)
        watch.end(item)
        if (item.key === 'k0' && item.n === 1) {
          attempts.push(attempt)
          if (attempt < 4) throw new Error('not yet')
        }
        watch.success(item)
      })
      await publishAll(bus, 4, 5)
      // Other keys need no time at all.
      await bus.handled({ count: 16, within: 0 })
      await bus.handled({ count: 20 })
      expect(watch.breaks.slice(0, 3)).toEqual([])
      expect(attempts).toEqual([1, 2, 3, 4])
    })

    it('lets the key go on once the failing message is dead-lettered (block)', async () => {
      await using bus = await createTestBus({ memory })
      const seen: number[] = []
      const options: SubscribeOptions = { ...ordered, retry: { attempts: 3 } }
      await bus.subscribe<Item>('orders', options, ({ n }) => {
        seen.push(n)
        if (n === 0) throw new Error('never')
      })
      await publishAll(bus, 1, 3)
      await bus.deadLettered()
      await bus.handled({ count: 2 })
      expect(seen).toEqual([0, 0, 0, 1, 2])
    })

    it('lets later messages pass a failing one (skip)', async () => {
      await using bus = await createTestBus({ memory })
      const seen: number[] = []
      const options: SubscribeOptions = { ...ordered, onKeyFailure: 'skip' }
      await bus.subscribe<Item>('orders', options, ({ n }, { attempt }) => {
        seen.push(n)
        if (n === 0 && attempt === 1) throw new Error('not yet')
      })
      await publishAll(bus, 1, 3)
      await bus.handled({ count: 3 })
      expect(seen).toEqual([0, 1, 2, 0])
    })

    it('dead-letters the rest of a failed key in order while other keys flow, until its circuit closes (park)', async () => {
      await using bus = await createTestBus({ memory })
      const seen: string[] = []
      let failing = true
      const options: SubscribeOptions = { ...ordered, onKeyFailure: 'park', retry: { attempts: 2 } }
      await bus.subscribe<Item>('orders', options, ({ key, n }) => {
        seen.push(`${key}:${n}`)
        if (failing && key === 'k0' && n === 1) throw new Error('no')
      })
      await publishAll(bus, 2, 4)
      await bus.deadLettered({ count: 3 })
      await bus.handled({ count: 5 })
      expect(seen.filter((each) => each.startsWith('k0'))).toEqual(['k0:0', 'k0:1', 'k0:1'])
      expect(seen.filter((each) => each.startsWith('k1'))).toHaveLength(4)
      const letters = []
      for await (const letter of bus.deadLetters('orders', 'billing').list()) {
        const { n } = JSON.parse(Buffer.from(letter.body).toString())
        letters.push([n, letter.failure.reason])
      }
      expect(letters).toEqual([
        [1, 'exhausted'],
        [2, 'parked'],
        [3, 'parked'],
      ])
      expect(await bus.circuits('orders', 'billing').list()).toMatchObject([
        { key: 'k0', reason: 'no' },
      ])
      expect(bus.health().subscriptions[0]!.openCircuits).toBe(1)
      failing = false
      expect(await bus.circuits('orders', 'billing').close('k0', { redrive: true })).toBe(true)
      await bus.handled({ count: 8 })
      expect(seen.slice(-3)).toEqual(['k0:1', 'k0:2', 'k0:3'])
    })

    it('keeps the order while the connection is cut again and again', async () => {
      await using bus = await createTestBus({ memory })
      const watch = new Watch()
      const random = seeded(1)
      // So many cuts are no reason to suspect the messages.
      const options: SubscribeOptions = { ...ordered, retry: { maxDeliveries: 1000 } }
      await bus.subscribe<Item>('orders', options, async (item, { signal }) => {
        watch.start(item)
        await new Promise<void>((resolve) => bus.clock.setTimer(resolve, 5 + random() * 20))
        watch.end(item)
        if (signal.aborted) return
        if (random() < 0.1) throw new Error('now and then')
        watch.success(item)
      })
      await publishAll(bus, 8, 20)
      for (let i = 0; i < 30; i++) {
        await bus.advance(10)
        bus.native().broker.sever()
      }
      await bus.handled({ count: 160 })
      expect(watch.breaks.slice(0, 3)).toEqual([])
      expect([...watch.handled.values()]).toEqual(Array(8).fill(19))
    })

    it('keeps the order while members join, leave and crash', async () => {
      const clock = new VirtualClock()
      const shared = { clock, memory: { ...memory, name: `members-${memory.partitions ?? 0}` } }
      await using bus = await createTestBus(shared)
      const watch = new Watch()
      const random = seeded(2)
      const done = new Set<string>()
      const members = new Map<string, { readonly bus: TestBus; alive: boolean }>()
      let joined = 0

      async function join(): Promise<void> {
        const name = `member ${joined++}`
        const member = { bus: await createTestBus(shared), alive: true }
        members.set(name, member)
        await member.bus.subscribe<Item>('orders', ordered, async (item, { signal }) => {
          // A killed process does nothing more.
          if (!member.alive) return
          watch.start(item, name)
          await new Promise<void>((resolve) => clock.setTimer(resolve, 5 + random() * 20))
          if (!member.alive) return
          watch.end(item, name)
          if (signal.aborted) return
          if (random() < 0.05) throw new Error('now and then')
          watch.success(item)
          done.add(`${item.key}:${item.n}`)
        })
      }

      await join()
      await publishAll(bus, 16, 30)
      let closed = 0
      let crashed = 0
      for (let i = 0; i < 40; i++) {
        await clock.advance(7)
        if (members.size < 4) {
          await join()
          continue
        }
        const [name, member] = [...members][Math.floor(random() * members.size)]!
        members.delete(name)
        if (random() < 0.5) {
          await member.bus.close()
          closed++
        } else {
          member.alive = false
          member.bus.native().crash()
          watch.crashed(name)
          crashed++
        }
      }
      await clock.until(() => done.size === 480)
      expect(watch.breaks.slice(0, 3)).toEqual([])
      expect(done.size).toBe(480)
      expect([closed > 3, crashed > 3]).toEqual([true, true])
      for (const member of members.values()) await member.bus.close()
    })
  })
}
