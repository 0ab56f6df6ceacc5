import { describe, expect, it } from 'vitest'
import type { ConsumeOptions } from '../api.js'
import { createTestBus, type TestBus } from '../testing/index.js'

let brokers = 0

async function pair(partitions = 0): Promise<{ bus: TestBus; other: TestBus }> {
  const memory = { name: `attempts-${brokers++}`, partitions }
  const other = await createTestBus({ memory })
  const bus = await createTestBus({ memory, clock: other.clock })
  return { bus, other }
}

const orders: { how: string; options: Partial<ConsumeOptions> }[] = [
  { how: 'unordered', options: {} },
  { how: 'order key, block', options: { order: 'key' } },
  { how: 'order key, skip', options: { order: 'key', onKeyFailure: 'skip' } },
]

describe('invariant 8: attempt counts survive crashes', () => {
  for (const { how, options } of orders) {
    it(`goes on counting where a crashed consumer had come to (${how})`, async () => {
      const { bus, other } = await pair()
      expect(bus.capabilities).toMatchObject({ retry: 'broker', orderedRetry: 'broker' })
      const attempts: number[] = []
      const failing = (_: unknown, { attempt }: { attempt: number }) => {
        attempts.push(attempt)
        throw new Error('no')
      }
      await bus.subscribe('orders', { group: 'billing', ...options }, failing)
      const firstAt = bus.clock.now()
      const { id } = await bus.publish('orders', 1, { key: 'k' })
      await bus.retried({ count: 2 })
      bus.native().crash()
      await other.subscribe('orders', { group: 'billing', ...options }, failing)
      await other.deadLettered({ id })
      expect(attempts).toEqual([1, 2, 3, 4, 5])
      const letter = await other.deadLetters('orders', 'billing').get(id)
      expect(letter!.failure).toMatchObject({
        attempts: 5,
        reason: 'exhausted',
        firstFailedAt: firstAt,
        lastFailedAt: other.clock.now(),
      })
      await other.close()
    })
  }

  it('says in its capabilities where the process holds ordered retries, and counts anew there', async () => {
    const { bus, other } = await pair(8)
    expect(bus.capabilities).toMatchObject({ retry: 'broker', orderedRetry: 'process' })
    const attempts: number[] = []
    await bus.subscribe('orders', { group: 'billing', order: 'key' }, (_, { attempt }) => {
      attempts.push(attempt)
      throw new Error('no')
    })
    const { id } = await bus.publish('orders', 1, { key: 'k' })
    await bus.retried({ count: 2 })
    bus.native().crash()
    await other.subscribe('orders', { group: 'billing', order: 'key' }, () => {})
    const [event] = await other.handled({ id })
    expect(attempts).toEqual([1, 2])
    expect(event!.attempt).toBe(1)
    await other.close()
  })

  it('does not count a reconnect as an attempt', async () => {
    await using bus = await createTestBus()
    const seen: number[] = []
    await bus.subscribe('orders', { group: 'billing', retry: { maxDeliveries: 3 } }, (_, ctx) => {
      seen.push(ctx.attempt)
      if (seen.length < 10) bus.native().broker.sever()
    })
    await bus.publish('orders', 1)
    await bus.handled()
    expect(seen).toEqual(Array(10).fill(1))
  })

  it('dead-letters a message that ends its consumers, after maxDeliveries', async () => {
    const { bus: first, other } = await pair()
    let bus = first
    const { broker, clock } = { broker: other.native().broker, clock: other.clock }
    const memory = broker.options
    const seen: number[] = []
    for (let i = 0; i < 3; i++) {
      const dying = bus
      await dying.subscribe(
        'orders',
        { group: 'billing', retry: { maxDeliveries: 3 } },
        async (_, { deliveries, attempt }) => {
          seen.push(deliveries)
          expect(attempt).toBe(1)
          dying.native().crash()
          await new Promise(() => {})
        },
      )
      if (i === 0) await other.publish('orders', 'poison', { id: 'poison' })
      await other.advance(0)
      bus = await createTestBus({ memory, clock })
    }
    expect(seen).toEqual([1, 2, 3])
    await bus.subscribe('orders', { group: 'billing', retry: { maxDeliveries: 3 } }, () => {})
    await other.publish('orders', 'fine')
    const [event] = await bus.deadLettered({ id: 'poison' })
    expect(event).toMatchObject({ reason: 'delivery-limit' })
    expect(event!.error.message).toMatch(/delivered 4 times .*maxDeliveries is 3/)
    await bus.handled()
    await bus.close()
    await other.close()
  })

  it('begins to count deliveries anew with each attempt', async () => {
    const { bus: first, other } = await pair()
    let bus = first
    const memory = other.native().broker.options
    const seen: [number, number][] = []
    for (const what of ['crash', 'fail', 'crash', 'succeed']) {
      const member = bus
      const before = seen.length
      await member.subscribe('orders', { group: 'billing' }, (_, { attempt, deliveries }) => {
        seen.push([attempt, deliveries])
        if (what === 'crash') member.native().crash()
        if (what === 'fail') throw new Error('no')
      })
      if (before === 0) await other.publish('orders', 1)
      await other.clock.until(() => seen.length > before)
      await member.close({ timeout: 0 })
      bus = await createTestBus({ memory, clock: other.clock })
    }
    expect(seen).toEqual([
      [1, 1],
      [1, 2],
      [2, 1],
      [2, 2],
    ])
    await bus.close()
    await other.close()
  })
})
