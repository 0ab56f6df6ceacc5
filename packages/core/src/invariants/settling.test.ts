import { describe, expect, it } from 'vitest'
import type { ConsumeMiddleware, SubscribeOptions } from '../api.js'
import { PermanentError } from '../errors.js'
import { createTestBus, type TestBus } from '../testing/index.js'

const stats = (bus: TestBus) => bus.admin.stats('orders', 'billing')

/** A promise and the function that resolves it. */
function deferred<T = void>() {
  let resolve!: (value: T) => void
  const promise = new Promise<T>((done) => {
    resolve = done
  })
  return { promise, resolve }
}

const modes = [
  { mode: 'unordered', options: {} },
  { mode: 'ordered, block', options: { order: 'key', onKeyFailure: 'block' } },
  { mode: 'ordered, skip', options: { order: 'key', onKeyFailure: 'skip' } },
] as const satisfies readonly { mode: string; options: Partial<SubscribeOptions> }[]

describe('invariant 1: acked only after the whole chain succeeded or a copy is safe', () => {
  it('holds the message unacked until the last middleware has returned', async () => {
    await using bus = await createTestBus()
    const after = deferred()
    const handled = deferred()
    const slow: ConsumeMiddleware = async (context, next) => {
      await next(context)
      handled.resolve()
      await after.promise
    }
    await bus.subscribe('orders', { group: 'billing', middleware: [slow] }, () => {})
    await bus.publish('orders', 1)
    await handled.promise
    await bus.advance(1000)
    expect(await stats(bus)).toMatchObject({ inFlight: 1 })
    after.resolve()
    await bus.handled()
    expect(await stats(bus)).toEqual({ ready: 0, delayed: 0, inFlight: 0, dead: 0 })
  })

  it('returns the message when its consumer crashes after the handler but before the ack', async () => {
    const memory = { name: 'crash-before-ack' }
    await using bus = await createTestBus({ memory })
    const other = await createTestBus({ memory, clock: bus.clock })
    const stuck: ConsumeMiddleware = async (context, next) => {
      await next(context)
      await new Promise(() => {})
    }
    let first = 0
    await other.subscribe('orders', { group: 'billing', middleware: [stuck] }, () => void first++)
    await bus.publish('orders', 1)
    await bus.advance(0)
    expect(first).toBe(1)
    other.native().crash()
    await bus.subscribe('orders', { group: 'billing' }, () => {})
    const [event] = await bus.handled()
    expect(event).toMatchObject({ attempt: 1 })
  })

  for (const { mode, options } of modes) {
    it(`keeps the original unacked while the dead-letter store fails, and settles it later (${mode})`, async () => {
      await using bus = await createTestBus()
      const { broker } = bus.native()
      let failures = 0
      broker.faults.settle = (kind) => {
        if (kind !== 'dead-letter') return undefined
        failures++
        return 'fail'
      }
      await bus.subscribe(
        'orders',
        { ...options, group: 'billing', concurrency: 2, retry: { attempts: 1 } },
        (value) => {
          if (value === 'bad') throw new Error('no')
        },
      )
      const settleFailed: unknown[] = []
      bus.on('settle-failed', (event) => settleFailed.push(event))
      const { id } = await bus.publish('orders', 'bad', { key: 'a' })
      await bus.publish('orders', 'good', { key: 'b' })
      await bus.advance(60_000)
      expect(failures).toBeGreaterThan(3)
      expect(settleFailed).toHaveLength(failures)
      expect(await stats(bus)).toMatchObject({ inFlight: 1, dead: 0 })
      broker.faults = {}
      await bus.deadLettered({ id })
      await bus.handled({ where: ({ message }) => message.id !== id })
      expect(await stats(bus)).toEqual({ ready: 0, delayed: 0, inFlight: 0, dead: 1 })
    })

    it(`keeps the original unacked while the retry store fails, and retries it later (${mode})`, async () => {
      await using bus = await createTestBus()
      const { broker } = bus.native()
      broker.faults.settle = (kind) => (kind === 'retry' ? 'fail' : undefined)
      const attempts: number[] = []
      await bus.subscribe('orders', { ...options, group: 'billing' }, (_, { attempt }) => {
        attempts.push(attempt)
        if (attempt === 1) throw new Error('no')
      })
      const { id } = await bus.publish('orders', 1, { key: 'a' })
      await bus.advance(60_000)
      expect(attempts).toEqual([1])
      expect(await stats(bus)).toMatchObject({ inFlight: 1, delayed: 0, ready: 0, dead: 0 })
      broker.faults = {}
      const [event] = await bus.handled({ id })
      expect(event).toMatchObject({ attempt: 2 })
      expect(attempts).toEqual([1, 2])
    })
  }

  it('tries an ack again that failed, without running the handler again', async () => {
    await using bus = await createTestBus()
    const { broker } = bus.native()
    let failures = 3
    broker.faults.settle = () => (failures-- > 0 ? 'fail' : undefined)
    let runs = 0
    await bus.subscribe('orders', { group: 'billing' }, () => void runs++)
    await bus.publish('orders', 1)
    await bus.handled()
    expect(runs).toBe(1)
    expect(failures).toBe(-1)
  })

  it('gives the original back when closing ends while the dead-letter store still fails', async () => {
    const memory = { name: 'close-while-dead-letter-fails' }
    await using other = await createTestBus({ memory })
    const bus = await createTestBus({ memory, clock: other.clock })
    bus.native().broker.faults.settle = () => 'fail'
    await bus.subscribe('orders', { group: 'billing', retry: { attempts: 1 } }, () => {
      throw new Error('no')
    })
    const { id } = await bus.publish('orders', 1)
    await bus.failed({ id })
    await bus.close({ timeout: '5s' })
    expect(await other.admin.stats('orders', 'billing')).toMatchObject({ ready: 1, dead: 0 })
    other.native().broker.faults = {}
    await other.subscribe('orders', { group: 'billing' }, () => {})
    await other.handled({ id })
  })

  it('opens the circuit before it stores the dead letter', async () => {
    await using bus = await createTestBus()
    const { broker } = bus.native()
    const atBury: number[] = []
    broker.faults.settle = (kind) => {
      if (kind === 'dead-letter') atBury.push(bus.health().subscriptions[0]!.openCircuits)
      return undefined
    }
    await bus.subscribe(
      'orders',
      { group: 'billing', order: 'key', onKeyFailure: 'park', retry: { attempts: 1 } },
      () => {
        throw new PermanentError('no')
      },
    )
    await bus.publish('orders', 1, { key: 'a' })
    await bus.deadLettered()
    expect(atBury).toEqual([1])
  })
})

describe('invariant 2: settled exactly once', () => {
  it('returns false from the second settle of every kind, and does nothing', async () => {
    await using bus = await createTestBus()
    const results: boolean[][] = []
    await bus.subscribe('orders', { group: 'billing', concurrency: 3 }, async (kind, context) => {
      const first = kind === 'ack' ? 'ack' : kind === 'retry' ? 'retry' : 'deadLetter'
      if (context.attempt > 1) return
      results.push([
        await context[first](),
        await context.ack(),
        await context.retry('1s'),
        await context.deadLetter(),
      ])
      expect(context.settled).toBe(true)
    })
    for (const kind of ['ack', 'retry', 'deadLetter']) await bus.publish('orders', kind)
    await bus.handled({ count: 2 })
    await bus.deadLettered({ count: 1 })
    expect(results).toEqual(Array(3).fill([true, false, false, false]))
    await bus.advance(600_000)
    expect(await bus.handled({ count: 2 })).toHaveLength(2)
    expect(await stats(bus)).toEqual({ ready: 0, delayed: 0, inFlight: 0, dead: 1 })
  })

  it('does not settle again when the handler returns after it settled', async () => {
    await using bus = await createTestBus()
    const kinds: string[] = []
    bus.native().broker.faults.settle = (kind) => void kinds.push(kind)
    await bus.subscribe('orders', { group: 'billing' }, (_, context) => context.deadLetter())
    await bus.publish('orders', 1)
    await bus.deadLettered()
    expect(kinds).toEqual(['dead-letter'])
  })

  it('does not retry a message whose handler throws after it acked', async () => {
    await using bus = await createTestBus()
    let runs = 0
    await bus.subscribe('orders', { group: 'billing' }, async (_, context) => {
      runs++
      expect(await context.ack()).toBe(true)
      throw new Error('too late')
    })
    await bus.publish('orders', 1)
    await bus.handled()
    await bus.advance(600_000)
    expect(runs).toBe(1)
    expect(await stats(bus)).toEqual({ ready: 0, delayed: 0, inFlight: 0, dead: 0 })
  })

  it('lets one of two settles at the same time win', async () => {
    await using bus = await createTestBus()
    const results: boolean[] = []
    await bus.subscribe('orders', { group: 'billing' }, async (_, context) => {
      results.push(...(await Promise.all([context.ack(), context.deadLetter(), context.retry()])))
    })
    await bus.publish('orders', 1)
    await bus.handled()
    await bus.advance(600_000)
    expect(results).toEqual([true, false, false])
    expect(await stats(bus)).toEqual({ ready: 0, delayed: 0, inFlight: 0, dead: 0 })
  })

  it('returns false from a settle after the delivery was taken away', async () => {
    await using bus = await createTestBus()
    const cut = deferred()
    const started = deferred()
    const results: boolean[] = []
    let reason: unknown
    let runs = 0
    await bus.subscribe('orders', { group: 'billing' }, async (_, context) => {
      if (++runs > 1) return
      started.resolve()
      await cut.promise
      reason = context.signal.reason
      results.push(await context.ack(), await context.deadLetter())
    })
    await bus.publish('orders', 1)
    await started.promise
    bus.native().broker.sever()
    cut.resolve()
    const [event] = await bus.handled()
    expect(results).toEqual([false, false])
    expect(reason).toMatchObject({ code: 'LONGSHORE_REVOKED' })
    expect(event).toMatchObject({ attempt: 1 })
    expect(await stats(bus)).toEqual({ ready: 0, delayed: 0, inFlight: 0, dead: 0 })
  })
})
