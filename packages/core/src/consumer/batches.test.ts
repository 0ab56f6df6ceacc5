import { describe, expect, it } from 'vitest'
import type { BatchContext } from '../api.js'
import { PermanentError, topic } from '../index.js'
import { createTestBus, type TestBus } from '../testing/index.js'

const range = (count: number) => Array.from({ length: count }, (_, n) => n)
const stats = (bus: TestBus) => bus.admin.stats('orders', 'g')

describe('subscribeBatch', () => {
  it('calls the handler when the batch is full, with payloads and messages in order', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    const orders = topic<number>('orders')
    await bus.subscribeBatch(
      orders,
      { group: 'g', batchSize: 5, batchWait: '1h' },
      (payloads, context) => {
        seen.push(payloads)
        expect(context.messages.map(({ payload }) => payload)).toEqual(payloads)
        expect([context.topic, context.group]).toEqual(['orders', 'g'])
        expect(context.signal.aborted).toBe(false)
      },
    )
    for (const n of range(12)) await bus.publish(orders, n)
    await bus.handled({ count: 10, within: 0 })
    expect(seen).toEqual([range(5), range(10).slice(5)])
    expect(await stats(bus)).toMatchObject({ inFlight: 2 })
  })

  it('calls it with fewer when the wait is over, counted from the first of the batch', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    const start = bus.clock.now()
    await bus.subscribeBatch(
      'orders',
      { group: 'g', batchSize: 10, batchWait: '100ms' },
      (payloads) => void seen.push([bus.clock.now() - start, payloads]),
    )
    await bus.publish('orders', 0)
    await bus.advance(60)
    await bus.publish('orders', 1)
    await bus.handled({ count: 2 })
    await bus.advance(1000)
    await bus.publish('orders', 2)
    await bus.handled({ count: 3 })
    expect(seen).toEqual([
      [100, [0, 1]],
      [1200, [2]],
    ])
  })

  it('has defaults: 100 messages, 100 ms', async () => {
    await using bus = await createTestBus()
    const sizes: number[] = []
    await bus.subscribeBatch(
      'orders',
      { group: 'g' },
      (payloads) => void sizes.push(payloads.length),
    )
    const entries = range(250).map((payload) => ({ payload }))
    await bus.publishBatch('orders', entries)
    await bus.handled({ count: 200, within: 0 })
    await bus.handled({ count: 250, within: 100 })
    expect(sizes).toEqual([100, 100, 50])
  })

  it('runs as many batches at once as concurrency says', async () => {
    await using bus = await createTestBus()
    let running = 0
    let most = 0
    await bus.subscribeBatch('orders', { group: 'g', batchSize: 5, concurrency: 3 }, async () => {
      most = Math.max(most, ++running)
      await new Promise<void>((resolve) => bus.clock.setTimer(resolve, 10))
      running--
    })
    await bus.publishBatch(
      'orders',
      range(100).map((payload) => ({ payload })),
    )
    await bus.handled({ count: 100 })
    expect(most).toBe(3)
  })

  it('retries only what was marked with fail; the rest is acked', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    await bus.subscribeBatch(
      'orders',
      { group: 'g', batchSize: 4, batchWait: '10ms', retry: { attempts: 2 } },
      (payloads, context) => {
        seen.push(payloads)
        payloads.forEach((payload, index) => {
          if (payload === 'bad') context.fail(index, new Error('bad'))
          if (payload === 'worse') context.fail(index, new PermanentError('worse'))
        })
      },
    )
    for (const payload of ['a', 'bad', 'worse', 'b']) await bus.publish('orders', payload)
    const dead = await bus.deadLettered({ count: 2 })
    expect(seen).toEqual([['a', 'bad', 'worse', 'b'], ['bad']])
    expect(dead.map(({ reason, attempt }) => [reason, attempt])).toEqual([
      ['permanent', 1],
      ['exhausted', 2],
    ])
    expect(await bus.handled({ count: 2 })).toHaveLength(2)
  })

  it('fails all that were not marked when the handler throws', async () => {
    await using bus = await createTestBus()
    await bus.subscribeBatch(
      'orders',
      { group: 'g', batchSize: 3, retry: { attempts: 1 } },
      (_, context) => {
        context.fail(1, new PermanentError('mine'))
        throw new Error('all of you')
      },
    )
    for (const n of range(3)) await bus.publish('orders', n)
    const events = await bus.deadLettered({ count: 3 })
    expect(events.map(({ error }) => error.message)).toEqual(['all of you', 'mine', 'all of you'])
  })

  it('refuses fail for an index that there is not, which fails the batch', async () => {
    await using bus = await createTestBus()
    await bus.subscribeBatch(
      'orders',
      { group: 'g', batchSize: 2, retry: { attempts: 1 } },
      (payloads, context) => context.fail(Number(payloads[0]), new Error('x')),
    )
    for (const index of [2, -1, 1.5]) {
      await bus.publish('orders', index)
      await bus.publish('orders', 0)
    }
    const events = await bus.deadLettered({ count: 6 })
    for (const { error } of events) {
      expect(error).toMatchObject({
        code: 'LONGSHORE_OPTION',
        message: expect.stringMatching(/fail\(.*\): the batch has the messages 0 to 1/),
      })
    }
  })

  it('treats what a handler throws that is no Error as a NonError', async () => {
    await using bus = await createTestBus()
    const options = { group: 'g', batchSize: 1, retry: { attempts: 1 } }
    await bus.subscribeBatch('orders', options, (_, context) => {
      context.fail(0, undefined)
    })
    await bus.publish('orders', 1)
    expect(await bus.deadLettered()).toMatchObject([{ error: { code: 'LONGSHORE_NON_ERROR' } }])
  })

  for (const partitions of [0, 8]) {
    it(`has at most one message of a key in a batch, in order (partitions ${partitions})`, async () => {
      await using bus = await createTestBus({ memory: { partitions } })
      const seen: { key: string; n: number }[] = []
      let doubles = 0
      await bus.subscribeBatch<{ key: string; n: number }>(
        'orders',
        { group: 'g', order: 'key', batchSize: 4, batchWait: '50ms' },
        (payloads, context) => {
          seen.push(...payloads)
          doubles += payloads.length - new Set(payloads.map(({ key }) => key)).size
          const at = payloads.findIndex(({ key, n }) => key === 'k0' && n === 1)
          if (at >= 0 && seen.filter(({ key, n }) => key === 'k0' && n === 1).length === 1) {
            context.fail(at, new Error('once'))
          }
        },
      )
      for (const n of range(4)) {
        for (const k of range(4)) await bus.publish('orders', { key: `k${k}`, n }, { key: `k${k}` })
      }
      await bus.handled({ count: 16 })
      expect(doubles).toBe(0)
      expect(seen.filter(({ key }) => key === 'k0').map(({ n }) => n)).toEqual([0, 1, 1, 2, 3])
      expect(seen.filter(({ key }) => key === 'k1').map(({ n }) => n)).toEqual([0, 1, 2, 3])
    })
  }

  it('dead-letters unreadable messages without showing them to the handler', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    const options = { group: 'g', batchSize: 2, batchWait: '10ms' } as const
    await bus.subscribeBatch('orders', options, (payloads) => void seen.push(...payloads))
    bus.native().broker.publish('orders', new Uint8Array([1]))
    await bus.publish('orders', 'fine')
    await bus.deadLettered()
    await bus.handled()
    expect(seen).toEqual(['fine'])
  })

  it('leaves out of a batch what was taken away while it waited, and runs it later', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    const options = { group: 'g', batchSize: 3, batchWait: '1s' } as const
    await bus.subscribeBatch('orders', options, (payloads) => void seen.push(payloads))
    await bus.publish('orders', 0)
    await bus.publish('orders', 1)
    await bus.advance(10)
    bus.native().broker.sever()
    await bus.advance(100)
    await bus.publish('orders', 2)
    await bus.handled({ count: 3 })
    expect(seen.flat()).toEqual([0, 1, 2])
  })

  it('aborts the signal of a batch when one of its messages is taken away', async () => {
    await using bus = await createTestBus()
    let kept: BatchContext | undefined
    let runs = 0
    await bus.subscribeBatch('orders', { group: 'g', batchSize: 2 }, async (_, context) => {
      if (++runs > 1) return
      kept = context
      await new Promise<void>((resolve) => {
        context.signal.addEventListener('abort', () => resolve(), { once: true })
      })
    })
    await bus.publish('orders', 0)
    await bus.publish('orders', 1)
    await bus.advance(0)
    bus.native().broker.sever()
    expect(kept!.signal.aborted).toBe(true)
    await bus.handled({ count: 2 })
    expect(runs).toBe(2)
  })

  it('publishes from a batch', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('sums', { group: 'g' }, () => {})
    await bus.subscribeBatch<number>('orders', { group: 'g', batchSize: 3 }, (payloads, context) =>
      context.publish(
        'sums',
        payloads.reduce((sum, n) => sum + n, 0),
      ),
    )
    for (const n of range(3)) await bus.publish('orders', n)
    const [event] = await bus.handled({ topic: 'sums' })
    expect(Buffer.from(event!.message.body).toString()).toBe('3')
  })
})
