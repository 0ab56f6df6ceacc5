import { describe, expect, it } from 'vitest'
import type { DedupeStore } from '../index.js'
import { deduplicate, MemoryDedupeStore } from '../index.js'
import { createTestBus, VirtualClock } from '../testing/index.js'

async function busWithStore() {
  const clock = new VirtualClock()
  const bus = await createTestBus({ clock })
  const store = new MemoryDedupeStore({ clock })
  return { bus, store, clock }
}

describe('deduplicate', () => {
  it('runs a message once; repeats are acked without running', async () => {
    const { bus, store } = await busWithStore()
    let runs = 0
    const options = { group: 'g', middleware: [deduplicate({ store })] }
    await bus.subscribe('orders', options, () => void runs++)
    await bus.publish('orders', 1, { id: 'same' })
    await bus.publish('orders', 1, { id: 'same' })
    await bus.publish('orders', 1, { id: 'other' })
    await bus.handled({ count: 3 })
    expect(runs).toBe(2)
    await bus.close()
  })

  it('keeps groups apart, and takes a key of the user', async () => {
    const { bus, store } = await busWithStore()
    const seen: string[] = []
    for (const group of ['a', 'b']) {
      const options = { group, middleware: [deduplicate({ store })] }
      await bus.subscribe('orders', options, () => void seen.push(group))
    }
    const key = ({ payload }: { payload: unknown }) => (payload as { order: string }).order
    const options = { group: 'c', middleware: [deduplicate({ store, key })] }
    await bus.subscribe('orders', options, () => void seen.push('c'))
    await bus.publish('orders', { order: 'o1' })
    await bus.publish('orders', { order: 'o1' })
    await bus.handled({ count: 6 })
    expect(seen.sort()).toEqual(['a', 'a', 'b', 'b', 'c'])
    await bus.close()
  })

  it('gives the claim up when the handler fails, so that the retry runs', async () => {
    const { bus, store } = await busWithStore()
    const attempts: number[] = []
    const options = { group: 'g', middleware: [deduplicate({ store })] }
    await bus.subscribe('orders', options, (_, { attempt }) => {
      attempts.push(attempt)
      if (attempt < 3) throw new Error('no')
    })
    await bus.publish('orders', 1)
    await bus.handled()
    expect(attempts).toEqual([1, 2, 3])
    await bus.close()
  })

  it('retries later, uncounted, what somebody else is at', async () => {
    const { bus, store, clock } = await busWithStore()
    await store.claim('g:busy', 'somebody else', 60_000)
    const seen: [number, number][] = []
    const begin = clock.now()
    const options = {
      group: 'g',
      retry: { attempts: 2 },
      middleware: [deduplicate({ store })],
    }
    await bus.subscribe('orders', options, (_, { attempt }) => {
      seen.push([attempt, clock.now() - begin])
    })
    await bus.publish('orders', 1, { id: 'busy' })
    await bus.handled()
    expect(seen).toEqual([[1, 60_000]])
    await bus.close()
  })

  it('runs again after a crash, once the claim has lapsed', async () => {
    const memory = { name: 'dedupe-crash' }
    const clock = new VirtualClock()
    const store = new MemoryDedupeStore({ clock })
    const middleware = [deduplicate({ store, claim: '1m' })]
    await using bus = await createTestBus({ memory, clock })
    const dying = await createTestBus({ memory, clock })
    await dying.subscribe('orders', { group: 'g', middleware }, () => new Promise(() => {}))
    await bus.publish('orders', 1)
    await bus.advance(0)
    dying.native().crash()
    const begin = clock.now()
    await bus.subscribe('orders', { group: 'g', middleware }, () => {})
    await bus.handled()
    expect(clock.now() - begin).toBe(60_000)
  })

  it('forgets after its ttl', async () => {
    const { bus, store } = await busWithStore()
    let runs = 0
    const options = { group: 'g', middleware: [deduplicate({ store, ttl: '1h' })] }
    await bus.subscribe('orders', options, () => void runs++)
    await bus.publish('orders', 1, { id: 'same' })
    await bus.handled()
    await bus.advance(3_599_999)
    await bus.publish('orders', 1, { id: 'same' })
    await bus.handled({ count: 2 })
    expect(runs).toBe(1)
    await bus.advance(1)
    await bus.publish('orders', 1, { id: 'same' })
    await bus.handled({ count: 3 })
    expect(runs).toBe(2)
    await bus.close()
  })

  it('does not mark as done what the handler put off with ctx.retry', async () => {
    const { bus, store } = await busWithStore()
    const attempts: number[] = []
    const options = { group: 'g', middleware: [deduplicate({ store })] }
    await bus.subscribe('orders', options, async (_, context) => {
      attempts.push(context.attempt)
      if (context.attempt === 1) await context.retry('1m')
    })
    await bus.publish('orders', 1)
    await bus.handled()
    expect(attempts).toEqual([1, 2])
    await bus.close()
  })

  it('lets one of many deliveries of one id win at the same time', async () => {
    const { bus, store } = await busWithStore()
    let runs = 0
    const options = { group: 'g', concurrency: 10, middleware: [deduplicate({ store })] }
    await bus.subscribe('orders', options, async () => {
      runs++
      await new Promise<void>((resolve) => bus.clock.setTimer(resolve, 100))
    })
    for (let n = 0; n < 10; n++) await bus.publish('orders', n, { id: 'same' })
    await bus.handled({ count: 10 })
    expect(runs).toBe(1)
    await bus.close()
  })

  it('treats a store that is down as a failed attempt', async () => {
    const { bus } = await busWithStore()
    let down = true
    const memory = new MemoryDedupeStore({ clock: bus.clock })
    const store: DedupeStore = {
      claim: (...args) => (down ? Promise.reject(new Error('down')) : memory.claim(...args)),
      done: (...args) => memory.done(...args),
      release: (...args) => memory.release(...args),
    }
    let runs = 0
    const options = { group: 'g', middleware: [deduplicate({ store })] }
    await bus.subscribe('orders', options, () => void runs++)
    await bus.publish('orders', 1)
    await bus.retried()
    down = false
    await bus.handled()
    expect(runs).toBe(1)
    await bus.close()
  })

  it('refuses wrong options when it is made', () => {
    expect(() => deduplicate({ store: new MemoryDedupeStore(), ttl: 'x' as never })).toThrow(
      expect.objectContaining({ code: 'LONGSHORE_OPTION' }),
    )
    expect(() => deduplicate({} as never)).toThrow(
      expect.objectContaining({
        code: 'LONGSHORE_OPTION',
        message: expect.stringMatching(/store/),
      }),
    )
    expect(() => deduplicate({ store: new MemoryDedupeStore(), tll: 5 } as never)).toThrow(
      expect.objectContaining({ code: 'LONGSHORE_UNKNOWN_OPTION' }),
    )
  })
})

describe('MemoryDedupeStore', () => {
  it('claims once, until released or lapsed', async () => {
    const clock = new VirtualClock()
    const store = new MemoryDedupeStore({ clock })
    expect(await store.claim('k', 'a', 1000)).toBe('claimed')
    expect(await store.claim('k', 'b', 1000)).toBe('busy')
    await store.release('k', 'b')
    expect(await store.claim('k', 'b', 1000)).toBe('busy')
    await store.release('k', 'a')
    expect(await store.claim('k', 'b', 1000)).toBe('claimed')
    await clock.advance(1000)
    expect(await store.claim('k', 'c', 1000)).toBe('claimed')
    await store.done('k', 'b', 5000)
    expect(await store.claim('k', 'd', 1000)).toBe('busy')
    await store.done('k', 'c', 5000)
    expect(await store.claim('k', 'd', 1000)).toBe('done')
    await clock.advance(5000)
    expect(await store.claim('k', 'd', 1000)).toBe('claimed')
  })

  it('is bounded: the oldest are forgotten', async () => {
    const store = new MemoryDedupeStore({ max: 3 })
    for (const key of ['a', 'b', 'c', 'd']) await store.claim(key, 't', 1000)
    expect(await store.claim('d', 'u', 1000)).toBe('busy')
    expect(await store.claim('a', 'u', 1000)).toBe('claimed')
  })
})
