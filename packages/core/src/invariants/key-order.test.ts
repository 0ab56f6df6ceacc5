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
  readonly running = new Map<string, number>()
  /** Key to the number of the message that has been handled last, all before it included. */
  readonly handled = new Map<string, number>()
  most = 0

  start({ key, n }: Item): void {
    const before = this.handled.get(key) ?? -1
    if (n > before + 1) this.breaks.push(`${key}: ${n} began before ${before + 1} was handled`)
    const now = (this.running.get(key) ?? 0) + 1
    this.running.set(key, now)
    if (now > 1) this.breaks.push(`${key}: ${now} handlers at once`)
  }

  end({ key }: Item): void {
    this.running.set(key, this.running.get(key)! - 1)
  }

  success({ key, n }: Item): void {
    this.handled.set(key, Math.max(n, this.handled.get(key) ?? -1))
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
      expect(watch.breaks).toEqual([])
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
      expect(watch.breaks).toEqual([])
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
      await bus.subscribe<Item>('orders', ordered, async (item, { signal }) => {
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
      expect(watch.breaks).toEqual([])
      expect([...watch.handled.values()]).toEqual(Array(8).fill(19))
    })

    it('keeps the order while members join, leave and crash', async () => {
      const clock = new VirtualClock()
      const shared = { clock, memory: { ...memory, name: `members-${memory.partitions ?? 0}` } }
      await using bus = await createTestBus(shared)
      const watch = new Watch()
      const random = seeded(2)
      const done = new Set<string>()
      const buses = new Set<TestBus>()

      async function join(): Promise<void> {
        const member = await createTestBus(shared)
        buses.add(member)
        let alive = true
        await member.subscribe<Item>('orders', ordered, async (item, { signal }) => {
          // What a killed process runs on with is nobody's business.
          if (!alive) return
          watch.start(item)
          await new Promise<void>((resolve) => clock.setTimer(resolve, 5 + random() * 20))
          if (!alive) return
          watch.end(item)
          if (signal.aborted) return
          if (random() < 0.05) throw new Error('now and then')
          watch.success(item)
          done.add(`${item.key}:${item.n}`)
        })
        const { crash } = member.native()
        member.native().crash = () => {
          alive = false
          // Its handlers are gone with it; no other member has one.
          crash.call(member.native())
        }
      }

      await join()
      await publishAll(bus, 16, 30)
      for (let i = 0; i < 40; i++) {
        await clock.advance(7)
        if (buses.size < 4) await join()
        else {
          const leaver = [...buses][Math.floor(random() * buses.size)]!
          buses.delete(leaver)
          // Running handlers finish while the others work on.
          if (random() < 0.5) await leaver.close()
          else {
            const before = new Map(watch.running)
            leaver.native().crash()
            watch.running.clear()
            for (const member of buses) void member
            for (const [key, count] of before) if (count > 0) watch.running.set(key, 0)
          }
        }
      }
      await clock.until(() => done.size === 480)
      expect(watch.breaks).toEqual([])
      expect(done.size).toBe(480)
      for (const member of buses) await member.close()
    })
  })
}
