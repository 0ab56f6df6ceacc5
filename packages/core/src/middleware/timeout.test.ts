import { describe, expect, it } from 'vitest'
import { timeout } from '../index.js'
import { createTestBus, type TestBus } from '../testing/index.js'

const sleep = (bus: TestBus, ms: number) =>
  new Promise<void>((resolve) => bus.clock.setTimer(resolve, ms))

describe('timeout', () => {
  for (const order of ['none', 'key'] as const) {
    it(`fails an attempt that takes longer; its signal aborts (order ${order})`, async () => {
      await using bus = await createTestBus()
      const reasons: unknown[] = []
      await bus.subscribe(
        'orders',
        { group: 'g', order, timeout: '5s', retry: { attempts: 2 } },
        async (_, { signal }) => {
          await new Promise<void>((resolve) => {
            signal.addEventListener('abort', () => resolve(), { once: true })
          })
          reasons.push(signal.reason)
        },
      )
      const start = bus.clock.now()
      await bus.publish('orders', 1, { key: 'k' })
      const [first] = await bus.failed()
      expect(bus.clock.now() - start).toBe(5000)
      expect(first!.error).toMatchObject({
        name: 'HandlerTimeoutError',
        code: 'LONGSHORE_HANDLER_TIMEOUT',
        message: expect.stringMatching(
          /'orders' in group 'g' took longer than 5000 ms; heed ctx\.signal, or raise/,
        ),
      })
      const [event] = await bus.deadLettered()
      expect(event).toMatchObject({ attempt: 2, reason: 'exhausted' })
      expect(reasons).toEqual([first!.error, event!.error])
    })
  }

  it('does not wait for a handler that ignores its signal, without an order', async () => {
    await using bus = await createTestBus()
    const attempts: number[] = []
    await bus.subscribe(
      'orders',
      { group: 'g', timeout: '5s', retry: { base: '1s' } },
      async (_, { attempt }) => {
        attempts.push(attempt)
        if (attempt === 1) await sleep(bus, 60_000)
      },
    )
    await bus.publish('orders', 1)
    await bus.handled({ within: 6000 })
    expect(attempts).toEqual([1, 2])
  })

  it('waits for it with an order, so that a key never has two handlers', async () => {
    await using bus = await createTestBus()
    let running = 0
    let most = 0
    const starts: [unknown, number][] = []
    const begin = bus.clock.now()
    await bus.subscribe(
      'orders',
      { group: 'g', order: 'key', concurrency: 2, timeout: '5s' },
      async (n, { attempt }) => {
        starts.push([n, bus.clock.now() - begin])
        most = Math.max(most, ++running)
        if (attempt === 1 && n === 0) await sleep(bus, 60_000)
        running--
      },
    )
    await bus.publish('orders', 0, { key: 'k' })
    await bus.publish('orders', 1, { key: 'k' })
    await bus.handled({ count: 2 })
    expect(most).toBe(1)
    expect(starts).toEqual([
      [0, 0],
      [0, 61_000],
      [1, 61_000],
    ])
  })

  it('fails an ordered attempt that took too long even when its handler succeeded in the end', async () => {
    await using bus = await createTestBus()
    await bus.subscribe(
      'orders',
      { group: 'g', order: 'key', timeout: '5s', retry: { attempts: 1 } },
      () => sleep(bus, 6000),
    )
    await bus.publish('orders', 1, { key: 'k' })
    const [event] = await bus.deadLettered()
    expect(event!.error.name).toBe('HandlerTimeoutError')
  })

  it('does nothing to what is in time, be it synchronous or not, and leaves no timer', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g', timeout: '5s' }, (n) => {
      return n === 'sync' ? undefined : sleep(bus, 4999)
    })
    await bus.publish('orders', 'sync')
    await bus.publish('orders', 'async')
    await bus.handled({ count: 2 })
    expect(await bus.failed({ count: 0 })).toEqual([])
  })

  it('keeps the error of a handler that fails in time', async () => {
    await using bus = await createTestBus()
    const options = { group: 'g', timeout: '5s', retry: { attempts: 1 } } as const
    await bus.subscribe('orders', options, async () => {
      await sleep(bus, 1000)
      throw new RangeError('mine')
    })
    await bus.publish('orders', 1)
    const [event] = await bus.deadLettered()
    expect(event!.error).toBeInstanceOf(RangeError)
  })

  it('ignores what a handler does after its time is up: its settle returns false', async () => {
    await using bus = await createTestBus()
    const late: boolean[] = []
    await bus.subscribe('orders', { group: 'g', timeout: '5s' }, async (_, context) => {
      if (context.attempt > 1) return
      await sleep(bus, 60_000)
      late.push(await context.ack())
    })
    await bus.publish('orders', 1)
    const [event] = await bus.handled()
    expect(event!.attempt).toBe(2)
    await bus.advance(60_000)
    expect(late).toEqual([false])
  })

  it('is not followed by immediate repeats: the time of the attempt is up', async () => {
    await using bus = await createTestBus()
    let runs = 0
    const retry = { attempts: 2, immediate: 3 }
    await bus.subscribe('orders', { group: 'g', timeout: '5s', retry }, async () => {
      runs++
      await sleep(bus, 60_000)
    })
    await bus.publish('orders', 1)
    await bus.deadLettered()
    expect(runs).toBe(2)
  })

  it('gives the next attempt a signal of its own', async () => {
    await using bus = await createTestBus({ memory: { partitions: 8 } })
    const aborted: boolean[] = []
    await bus.subscribe(
      'orders',
      { group: 'g', order: 'key', timeout: '5s' },
      async (_, { attempt, signal }) => {
        aborted.push(signal.aborted)
        if (attempt === 1) await sleep(bus, 6000)
      },
    )
    await bus.publish('orders', 1, { key: 'k' })
    await bus.handled()
    expect(aborted).toEqual([false, false])
  })

  it('is there as a middleware too, for a part of the chain', async () => {
    await using bus = await createTestBus()
    const options = { group: 'g', middleware: [timeout('1s')], retry: { attempts: 1 } }
    await bus.subscribe('orders', options, () => sleep(bus, 2000))
    await bus.publish('orders', 1)
    const [event] = await bus.deadLettered()
    expect(event!.error.name).toBe('HandlerTimeoutError')
    expect(() => timeout('soon' as never)).toThrow(/timeout is "soon"; give milliseconds/)
  })

  it('counts the time in the handler of a batch, not the wait for the batch', async () => {
    await using bus = await createTestBus()
    let calls = 0
    await bus.subscribeBatch(
      'orders',
      { group: 'g', batchSize: 10, batchWait: '1s', timeout: '500ms' },
      () => void calls++,
    )
    await bus.publish('orders', 1)
    await bus.handled({ within: 2000 })
    expect(calls).toBe(1)
    expect(await bus.failed({ count: 0 })).toEqual([])
  })
})
