import { describe, expect, it } from 'vitest'
import type { ConsumeOptions } from '../api.js'
import { deadLetter, retry } from '../index.js'
import { createTestBus, type TestBus } from '../testing/index.js'

let brokers = 0

/** Two buses on one broker and clock: one to close, one to look at what is left. */
async function pair(partitions = 0): Promise<{ bus: TestBus; other: TestBus }> {
  const memory = { name: `closing-${brokers++}`, partitions }
  const other = await createTestBus({ memory })
  const bus = await createTestBus({ memory, clock: other.clock })
  return { bus, other }
}

function deferred() {
  let resolve!: () => void
  const promise = new Promise<void>((done) => {
    resolve = done
  })
  return { promise, resolve }
}

const stats = (bus: TestBus) => bus.admin.stats('orders', 'billing')

describe('invariant 7: closing stops intake, lets handlers finish, hands back the rest, dead-letters nothing', () => {
  it('lets a running handler finish, publish and ack', async () => {
    const { bus, other } = await pair()
    const go = deferred()
    const started = deferred()
    await other.subscribe('invoices', { group: 'post' }, () => {})
    await bus.subscribe('orders', { group: 'billing' }, async (_, { publish, signal }) => {
      started.resolve()
      await go.promise
      await publish('invoices', 'invoice')
      expect(signal.aborted).toBe(false)
    })
    await bus.publish('orders', 1)
    await started.promise
    const closing = bus.close()
    go.resolve()
    expect(await closing).toEqual({ drained: true, abandoned: 0 })
    await other.handled({ topic: 'invoices' })
    expect(await stats(other)).toEqual({ ready: 0, delayed: 0, inFlight: 0, dead: 0 })
    await other.close()
  })

  for (const order of ['none', 'key'] as const) {
    it(`hands unstarted messages back uncounted and in order (order ${order})`, async () => {
      const { bus, other } = await pair()
      const go = deferred()
      const started = deferred()
      const returned: number[] = []
      bus.on('returned', ({ count }) => returned.push(count))
      await bus.subscribe(
        'orders',
        { group: 'billing', order, prefetch: 5, concurrency: 1 },
        async () => {
          started.resolve()
          await go.promise
        },
      )
      for (let n = 0; n < 10; n++) await bus.publish('orders', n, { key: `k${n % 3}` })
      await started.promise
      const closing = bus.close()
      go.resolve()
      await closing
      expect(returned.reduce((sum, count) => sum + count, 0)).toBeGreaterThan(0)
      expect(await stats(other)).toEqual({ ready: 9, delayed: 0, inFlight: 0, dead: 0 })
      const seen: unknown[] = []
      await other.subscribe('orders', { group: 'billing', order }, (n, { attempt, deliveries }) => {
        seen.push(n)
        expect([attempt, deliveries]).toEqual([1, 1])
      })
      await other.handled({ count: 9 })
      if (order === 'none') expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9])
      else
        for (let k = 0; k < 3; k++) {
          const ofKey = seen.filter((n) => Number(n) % 3 === k)
          expect(ofKey).toEqual([...ofKey].sort())
        }
      await other.close()
    })
  }

  it('gives up on a stuck handler at the timeout: its signal aborts, its message goes to another', async () => {
    const { bus, other } = await pair()
    let signal: AbortSignal | undefined
    await bus.subscribe('orders', { group: 'billing' }, async (_, context) => {
      signal = context.signal
      await new Promise(() => {})
    })
    const { id } = await bus.publish('orders', 1)
    await bus.advance(0)
    const before = bus.clock.now()
    expect(await bus.close({ timeout: '5s' })).toEqual({ drained: false, abandoned: 1 })
    expect(bus.clock.now() - before).toBe(5000)
    expect(signal!.aborted).toBe(true)
    expect(signal!.reason).toMatchObject({ code: 'LONGSHORE_REVOKED' })
    await other.subscribe('orders', { group: 'billing' }, () => {})
    expect(await other.handled({ id })).toMatchObject([{ attempt: 1 }])
    await other.close()
  })

  const last: { how: string; options: Partial<ConsumeOptions> }[] = [
    { how: 'the default policy', options: { retry: { attempts: 1 } } },
    { how: 'order key', options: { retry: { attempts: 1 }, order: 'key' } },
  ]
  for (const { how, options } of last) {
    it(`does not dead-letter a last attempt that fails during closing (${how})`, async () => {
      const { bus, other } = await pair()
      const go = deferred()
      const started = deferred()
      await bus.subscribe('orders', { group: 'billing', ...options }, async () => {
        started.resolve()
        await go.promise
        throw new Error('because of the shutdown')
      })
      const { id } = await bus.publish('orders', 1, { key: 'k' })
      await started.promise
      const closing = bus.close()
      go.resolve()
      await closing
      expect(await stats(other)).toEqual({ ready: 1, delayed: 0, inFlight: 0, dead: 0 })
      await other.subscribe(
        'orders',
        { group: 'billing', order: options.order ?? 'none' },
        () => {},
      )
      expect(await other.handled({ id })).toMatchObject([{ attempt: 1 }])
      await other.close()
    })
  }

  it('lets retries that wait at the broker wait on, and runs none while closed', async () => {
    const { bus, other } = await pair()
    await bus.subscribe('orders', { group: 'billing' }, () => {
      throw new Error('no')
    })
    const { id } = await bus.publish('orders', 1)
    await bus.retried()
    await bus.close()
    expect(await stats(other)).toMatchObject({ delayed: 1, ready: 0 })
    await other.subscribe('orders', { group: 'billing' }, () => {})
    expect(await other.handled({ id })).toMatchObject([{ attempt: 2 }])
    await other.close()
  })

  for (const partitions of [0, 8]) {
    it(`hands back a key that is blocked by a retry, in order (partitions ${partitions})`, async () => {
      const { bus, other } = await pair(partitions)
      await bus.subscribe('orders', { group: 'billing', order: 'key' }, () => {
        throw new Error('no')
      })
      for (let n = 0; n < 3; n++) await bus.publish('orders', n, { key: 'k' })
      await bus.retried()
      const before = bus.clock.now()
      expect(await bus.close()).toEqual({ drained: true, abandoned: 0 })
      expect(bus.clock.now()).toBe(before)
      expect(await stats(other)).toMatchObject({ ready: 3, inFlight: 0, dead: 0 })
      const seen: unknown[] = []
      await other.subscribe('orders', { group: 'billing', order: 'key' }, (n) => void seen.push(n))
      await other.handled({ count: 3 })
      expect(seen).toEqual([0, 1, 2])
      await other.close()
    })
  }

  for (const custom of ['deadLetter', 'retry'] as const) {
    it(`hands back a half-gathered batch uncounted, also with a ${custom} middleware of the user's own`, async () => {
      const { bus, other } = await pair()
      let calls = 0
      await bus.subscribeBatch(
        'orders',
        {
          group: 'billing',
          batchSize: 10,
          batchWait: '1h',
          ...(custom === 'deadLetter'
            ? { deadLetter: deadLetter(), retry: { attempts: 1 } }
            : { retry: retry() }),
        },
        () => void calls++,
      )
      for (let n = 0; n < 3; n++) await bus.publish('orders', n)
      await bus.advance(0)
      expect(await stats(bus)).toMatchObject({ inFlight: 3 })
      await bus.close()
      expect(calls).toBe(0)
      expect(await stats(other)).toEqual({ ready: 3, delayed: 0, inFlight: 0, dead: 0 })
      const seen: unknown[] = []
      await other.subscribe('orders', { group: 'billing' }, (_, context) => {
        seen.push([context.attempt, context.deliveries])
      })
      await other.handled({ count: 3 })
      expect(seen).toEqual(Array(3).fill([1, 1]))
      await other.close()
    })
  }

  it('lets a batch that runs finish, and hands back the one that gathers', async () => {
    const { bus, other } = await pair()
    const go = deferred()
    const started = deferred()
    await bus.subscribeBatch(
      'orders',
      { group: 'billing', batchSize: 2, batchWait: '1h', prefetch: 10 },
      async () => {
        started.resolve()
        await go.promise
      },
    )
    for (let n = 0; n < 5; n++) await bus.publish('orders', n)
    await started.promise
    const closing = bus.close()
    go.resolve()
    expect(await closing).toEqual({ drained: true, abandoned: 0 })
    expect(await stats(other)).toEqual({ ready: 3, delayed: 0, inFlight: 0, dead: 0 })
    await other.close()
  })

  it('ends a consume loop and hands back what it had not begun', async () => {
    const { bus, other } = await pair()
    const loop = (async () => {
      for await (const delivery of bus.consume('orders', { group: 'billing', concurrency: 3 })) {
        await delivery.ack()
        break
      }
    })()
    await bus.advance(0)
    for (let n = 0; n < 5; n++) await bus.publish('orders', n)
    await loop
    await bus.close()
    expect(await stats(other)).toEqual({ ready: 4, delayed: 0, inFlight: 0, dead: 0 })
    await other.close()
  })

  it('lets the body of a consume loop finish and ack during closing', async () => {
    const { bus, other } = await pair()
    const go = deferred()
    const started = deferred()
    const acks: boolean[] = []
    const loop = (async () => {
      for await (const delivery of bus.consume('orders', { group: 'billing' })) {
        started.resolve()
        await go.promise
        acks.push(await delivery.ack())
      }
    })()
    await bus.advance(0)
    await bus.publish('orders', 1)
    await started.promise
    const closing = bus.close()
    await bus.advance(10)
    go.resolve()
    await closing
    await loop
    expect(acks).toEqual([true])
    expect(await stats(other)).toEqual({ ready: 0, delayed: 0, inFlight: 0, dead: 0 })
    await other.close()
  })

  it('sends what is on its way out before it disconnects', async () => {
    const { bus, other } = await pair()
    await other.subscribe('orders', { group: 'billing' }, () => {})
    const publishing = Promise.all(Array.from({ length: 50 }, (_, n) => bus.publish('orders', n)))
    await bus.close()
    await publishing
    await other.handled({ count: 50 })
    await other.close()
  })

  it('is idempotent, and works on a bus that never did anything', async () => {
    await using bus = await createTestBus()
    const first = await bus.close()
    expect(first).toEqual({ drained: true, abandoned: 0 })
    expect(await bus.close()).toEqual(first)
    expect(await bus.close({ timeout: 0 })).toEqual(first)
  })

  it('raises a ClosedError from whatever is used after close', async () => {
    await using bus = await createTestBus()
    await bus.close()
    const closed = { code: 'LONGSHORE_CLOSED', message: expect.stringMatching(/connect again/) }
    await expect(bus.publish('orders', 1)).rejects.toMatchObject(closed)
    await expect(bus.publishBatch('orders', [{ payload: 1 }])).rejects.toMatchObject(closed)
    await expect(bus.subscribe('orders', { group: 'g' }, () => {})).rejects.toMatchObject(closed)
    await expect(bus.subscribeBatch('orders', { group: 'g' }, () => {})).rejects.toMatchObject(
      closed,
    )
    const next = bus.consume('orders', { group: 'g' })[Symbol.asyncIterator]().next()
    await expect(next).rejects.toMatchObject(closed)
    await expect(bus.cancelDelayed('orders', 'x')).rejects.toMatchObject(closed)
    expect(() => bus.deadLetters('orders', 'g')).toThrow(expect.objectContaining(closed))
    expect(() => bus.circuits('orders', 'g')).toThrow(expect.objectContaining(closed))
    expect(bus.health().status).toBe('down')
  })

  it('closes a bus whose subscription is still being made', async () => {
    await using bus = await createTestBus()
    const subscribing = bus.subscribe('orders', { group: 'billing' }, () => {})
    subscribing.catch(() => {})
    expect(await bus.close()).toEqual({ drained: true, abandoned: 0 })
    // Either it came to be and was closed, or it was refused; it must not run on.
    const subscription = await subscribing.catch((error) => error)
    if (subscription instanceof Error)
      expect(subscription).toMatchObject({ code: 'LONGSHORE_CLOSED' })
    else expect(subscription.state).toBe('closed')
  })

  it('leaves no timers behind', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'billing', order: 'key', killSwitch: true }, () => {})
    await bus.subscribeBatch('orders', { group: 'batch' }, () => {})
    await bus.publish('orders', 1, { key: 'k' })
    await bus.handled({ group: 'billing' })
    await bus.close()
    expect(bus.clock.next).toBeUndefined()
  })
})
