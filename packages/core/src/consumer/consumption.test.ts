import { describe, expect, it } from 'vitest'
import type { Delivery } from '../api.js'
import { createTestBus, type TestBus } from '../testing/index.js'

const stats = (bus: TestBus) => bus.admin.stats('orders', 'g')
const range = (count: number) => Array.from({ length: count }, (_, n) => n)

/** Runs a loop over a consumption; resolves when it ended. */
async function each(
  consumption: AsyncIterable<Delivery<unknown>>,
  body: (delivery: Delivery<unknown>) => Promise<unknown>,
): Promise<void> {
  for await (const delivery of consumption) if ((await body(delivery)) === 'break') break
}

describe('bus.consume', () => {
  it('hands out deliveries one after another, settled by hand', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    const consumption = bus.consume<{ n: number }>('orders', { group: 'g' })
    const loop = (async () => {
      for await (const delivery of consumption) {
        seen.push([delivery.payload.n, delivery.attempt, delivery.settled])
        expect(await delivery.ack()).toBe(true)
        expect(delivery.settled).toBe(true)
        expect(await delivery.ack()).toBe(false)
        if (seen.length === 5) break
      }
    })()
    await bus.advance(0)
    for (const n of range(5)) await bus.publish('orders', { n })
    await loop
    expect(seen).toEqual(range(5).map((n) => [n, 1, false]))
    expect(await stats(bus)).toEqual({ ready: 0, delayed: 0, inFlight: 0, dead: 0 })
    expect(bus.health().subscriptions).toEqual([])
  })

  it('joins its group only when the loop begins', async () => {
    await using bus = await createTestBus()
    const consumption = bus.consume('orders', { group: 'g' })
    await bus.publish('orders', 'before')
    expect(bus.health().subscriptions).toEqual([])
    const iterator = consumption[Symbol.asyncIterator]()
    const next = iterator.next()
    await bus.advance(0)
    expect(bus.health().subscriptions).toHaveLength(1)
    await bus.publish('orders', 'after')
    expect((await next).value).toMatchObject({ payload: 'after' })
  })

  it('retries, dead-letters, and applies the failure policy with fail', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    const options = { group: 'g', retry: { attempts: 3, base: '10s' } } as const
    const loop = each(bus.consume('orders', options), async (delivery) => {
      seen.push([delivery.payload, delivery.attempt])
      if (delivery.payload === 'fail') return delivery.fail(new Error('no'))
      if (delivery.payload === 'dead') return delivery.deadLetter(new Error('no'))
      if (delivery.attempt === 1) return delivery.retry('1m')
      return delivery.ack()
    })
    await bus.advance(0)
    for (const payload of ['fail', 'dead', 'retry']) await bus.publish('orders', payload)
    const dead = await bus.deadLettered({ count: 2 })
    await bus.handled()
    expect(seen).toEqual([
      ['fail', 1],
      ['dead', 1],
      ['retry', 1],
      ['fail', 2],
      ['fail', 3],
      ['retry', 2],
    ])
    expect(dead.map(({ reason, attempt }) => [reason, attempt])).toEqual([
      ['requested', 1],
      ['exhausted', 3],
    ])
    await bus.close()
    await loop
  })

  it('keeps the order of keys, and blocks behind a failing one, also held in the process', async () => {
    for (const partitions of [0, 8]) {
      await using bus = await createTestBus({ memory: { partitions } })
      const seen: unknown[] = []
      const options = { group: 'g', order: 'key', concurrency: 2 } as const
      const loop = each(bus.consume('orders', options), async (delivery) => {
        seen.push(delivery.payload)
        if (delivery.payload === 0 && delivery.attempt === 1) await delivery.fail(new Error('no'))
        else await delivery.ack()
        return seen.length === 4 ? 'break' : undefined
      })
      await bus.advance(0)
      for (const n of range(3)) await bus.publish('orders', n, { key: 'k' })
      await bus.handled({ count: 3 })
      await loop
      expect(seen).toEqual([0, 0, 1, 2])
    }
  })

  for (const how of ['break', 'throw', 'return'] as const) {
    it(`gives back what is not settled when the loop ends by ${how}, uncounted`, async () => {
      await using bus = await createTestBus()
      const loop = (async () => {
        for await (const _ of bus.consume('orders', { group: 'g', prefetch: 4 })) {
          if (how === 'break') break
          if (how === 'return') return
          throw new Error('out')
        }
      })()
      loop.catch(() => {})
      await bus.advance(0)
      for (const n of range(6)) await bus.publish('orders', n)
      if (how === 'throw') await expect(loop).rejects.toThrow('out')
      else await loop
      expect(await stats(bus)).toEqual({ ready: 6, delayed: 0, inFlight: 0, dead: 0 })
      const seen: unknown[] = []
      await bus.subscribe('orders', { group: 'g' }, (n, { attempt, deliveries }) => {
        seen.push([n, attempt, deliveries])
      })
      await bus.handled({ count: 6 })
      expect(seen).toEqual(range(6).map((n) => [n, 1, 1]))
    })
  }

  it('ends the loop when it is closed, when its signal aborts, and when the bus closes', async () => {
    for (const end of ['close', 'abort', 'bus', 'dispose'] as const) {
      await using bus = await createTestBus()
      const abort = new AbortController()
      const consumption = bus.consume('orders', { group: 'g', signal: abort.signal })
      const loop = each(consumption, (delivery) => delivery.ack())
      await bus.advance(0)
      await bus.publish('orders', 1)
      await bus.handled()
      if (end === 'close') expect(await consumption.close()).toMatchObject({ drained: true })
      else if (end === 'abort') abort.abort()
      else if (end === 'bus') await bus.close()
      else await consumption[Symbol.asyncDispose]()
      await loop
    }
  })

  it('can be closed before it began, and is over then', async () => {
    await using bus = await createTestBus()
    const consumption = bus.consume('orders', { group: 'g' })
    expect(await consumption.close()).toEqual({ drained: true, abandoned: 0 })
    await each(consumption, async () => {
      throw new Error('there is nothing')
    })
    expect(bus.health().subscriptions).toEqual([])
  })

  it('throws into the loop when the subscription fails for good', async () => {
    await using bus = await createTestBus({ autoCreate: false })
    await bus.admin.createTopic('orders')
    await bus.admin.createGroup('orders', 'g', { order: 'none', from: 'latest' })
    const loop = each(bus.consume('orders', { group: 'g' }), (delivery) => delivery.ack())
    loop.catch(() => {})
    await bus.advance(0)
    await bus.admin.deleteTopic('orders')
    await expect(loop).rejects.toMatchObject({ code: 'LONGSHORE_NOT_FOUND' })
  })

  it('throws into the loop when the group cannot be joined', async () => {
    await using bus = await createTestBus({ autoCreate: false })
    const loop = each(bus.consume('orders', { group: 'g' }), (delivery) => delivery.ack())
    await expect(loop).rejects.toMatchObject({ code: 'LONGSHORE_NOT_FOUND' })
  })

  it('does not hand out what was taken away while it waited, and returns false for what is in hands', async () => {
    await using bus = await createTestBus()
    const iterator = bus.consume('orders', { group: 'g', concurrency: 3 })[Symbol.asyncIterator]()
    const first = iterator.next()
    await bus.advance(0)
    for (const n of range(3)) await bus.publish('orders', n)
    const { value: held } = await first
    await bus.advance(0)
    bus.native().broker.sever()
    expect(held.signal.aborted).toBe(true)
    expect(await held.ack()).toBe(false)
    await bus.advance(100)
    const again: unknown[] = []
    for (const _ of range(3)) {
      const { value } = await iterator.next()
      again.push(value.payload)
      expect(await value.ack()).toBe(true)
    }
    expect(again).toEqual([0, 1, 2])
    await iterator.return?.()
    expect(await stats(bus)).toEqual({ ready: 0, delayed: 0, inFlight: 0, dead: 0 })
  })

  it('goes on after a delivery was taken away that its holder never settled', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    const iterator = bus.consume('orders', { group: 'g' })[Symbol.asyncIterator]()
    const first = iterator.next()
    await bus.advance(0)
    await bus.publish('orders', 1)
    await first
    bus.native().broker.sever()
    await bus.advance(100)
    const { value } = await iterator.next()
    seen.push(value.payload)
    await value.ack()
    expect(seen).toEqual([1])
    await iterator.return?.()
  })

  it('never hands out more than concurrency at once', async () => {
    await using bus = await createTestBus()
    const iterator = bus.consume('orders', { group: 'g', concurrency: 2 })[Symbol.asyncIterator]()
    const nexts = range(3).map(() => iterator.next())
    await bus.advance(0)
    for (const n of range(3)) await bus.publish('orders', n)
    const [a] = await Promise.all(nexts.slice(0, 2))
    let third = false
    void nexts[2]!.then(() => {
      third = true
    })
    await bus.advance(1000)
    expect(third).toBe(false)
    await a!.value.ack()
    expect((await nexts[2]!).value.payload).toBe(2)
    await iterator.return?.()
  })

  it('runs middleware around each delivery, until it is settled', async () => {
    await using bus = await createTestBus()
    const log: string[] = []
    const options = {
      group: 'g',
      middleware: [
        async (_context: unknown, next: (context: never) => unknown) => {
          log.push('in')
          await next(_context as never)
          log.push('out')
        },
      ],
    }
    const loop = each(bus.consume('orders', options as never), async (delivery) => {
      log.push('body')
      await delivery.ack()
      return 'break'
    })
    await bus.advance(0)
    await bus.publish('orders', 1)
    await loop
    await bus.advance(0)
    expect(log).toEqual(['in', 'body', 'out'])
  })
})
