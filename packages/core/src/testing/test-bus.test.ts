import { describe, expect, it } from 'vitest'
import { createTestBus, ExpectationError, VirtualClock } from './index.js'

describe('createTestBus', () => {
  it('waits for messages to be handled, retried, failed and dead-lettered', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g', retry: { attempts: 3 } }, (payload) => {
      if (payload === 'bad') throw new Error('no')
    })
    const good = await bus.publish('orders', 'good', { key: 'a' })
    const bad = await bus.publish('orders', 'bad', { key: 'b' })
    expect(await bus.handled({ id: good.id })).toMatchObject([{ message: { id: good.id } }])
    expect(await bus.failed({ key: 'b' })).toHaveLength(1)
    expect(await bus.retried({ topic: 'orders', group: 'g', count: 2 })).toHaveLength(2)
    expect(await bus.deadLettered({ where: ({ attempt }) => attempt === 3 })).toMatchObject([
      { message: { id: bad.id } },
    ])
    expect(await bus.handled({ topic: { name: 'orders' } })).toHaveLength(1)
  })

  it('counts what came before the call', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g' }, () => {})
    for (let n = 0; n < 3; n++) await bus.publish('orders', n)
    await bus.advance(0)
    expect(await bus.handled({ count: 3 })).toHaveLength(3)
  })

  it('says in an ExpectationError what was expected and what there was', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g' }, () => {})
    await bus.publish('orders', 1)
    const error = await bus.deadLettered({ topic: 'orders' }).catch((thrown) => thrown)
    expect(error).toBeInstanceOf(ExpectationError)
    expect(error).toMatchObject({
      code: 'LONGSHORE_EXPECTATION',
      message:
        `expected 1 'dead-lettered' {"topic":"orders"}, saw 0; ` +
        'in all: 1 handled, 0 retried, 0 failed, 0 dead-lettered',
    })
  })

  it('lets no more time pass than within allows', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g' }, () => {})
    await bus.publish('orders', 1, { delay: '1h' })
    const start = bus.clock.now()
    await expect(bus.handled({ within: 3_599_999 })).rejects.toBeInstanceOf(ExpectationError)
    expect(bus.clock.now() - start).toBeLessThanOrEqual(3_599_999)
    await bus.handled()
    expect(bus.clock.now() - start).toBe(3_600_000)
  })

  it('waits for real I/O of a handler', async () => {
    await using bus = await createTestBus()
    const { readFile } = await import('node:fs/promises')
    await bus.subscribe('orders', { group: 'g' }, async () => {
      await readFile(new URL(import.meta.url))
    })
    await bus.publish('orders', 1)
    await bus.handled()
  })

  it('advances time on demand: retries, delays and timeouts come due', async () => {
    await using bus = await createTestBus()
    const attempts: number[] = []
    await bus.subscribe('orders', { group: 'g' }, (_, { attempt }) => {
      attempts.push(attempt)
      throw new Error('no')
    })
    await bus.publish('orders', 1)
    await bus.advance(1000)
    expect(attempts).toEqual([1, 2])
    await bus.advance(2000)
    expect(attempts).toEqual([1, 2, 3])
  })

  it('closes while handlers wait for the clock', async () => {
    const bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g' }, () => {
      return new Promise<void>((resolve) => bus.clock.setTimer(resolve, 10_000))
    })
    await bus.publish('orders', 1)
    await bus.advance(0)
    expect(await bus.close()).toEqual({ drained: true, abandoned: 0 })
  })

  it('has no jitter, unless its clock is given some', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g' }, () => {
      throw new Error('no')
    })
    await bus.publish('orders', 1)
    expect(await bus.retried()).toMatchObject([{ delayMs: 1000 }])
    await using jittery = await createTestBus({ clock: new VirtualClock({ random: () => 0 }) })
    await jittery.subscribe('orders', { group: 'g' }, () => {
      throw new Error('no')
    })
    await jittery.publish('orders', 1)
    expect(await jittery.retried()).toMatchObject([{ delayMs: 900 }])
  })

  it('has a broker of its own, and gives its faults', async () => {
    await using bus = await createTestBus()
    await using other = await createTestBus()
    expect(bus.native().broker).not.toBe(other.native().broker)
    bus.native().broker.faults.publish = () => 'reject'
    await expect(bus.publish('orders', 1)).rejects.toThrow()
    await other.publish('orders', 1)
  })

  it('checks its options as connect does', async () => {
    await expect(createTestBus({ memroy: {} } as never)).rejects.toMatchObject({
      code: 'LONGSHORE_UNKNOWN_OPTION',
    })
  })
})

describe('VirtualClock', () => {
  it('stands still, begins where it is told, and runs timers in the order of their times', async () => {
    const clock = new VirtualClock({ now: 1000 })
    const log: unknown[] = []
    const at = (name: string) => () => void log.push([name, clock.now()])
    clock.setTimer(at('c'), 30)
    clock.setTimer(at('a'), 10)
    clock.setTimer(at('b'), 10)
    const cancelled = clock.setTimer(at('never'), 20)
    cancelled.cancel()
    expect(clock.next).toBe(10)
    await clock.advance(29)
    expect(log).toEqual([
      ['a', 1010],
      ['b', 1010],
    ])
    expect(clock.now()).toBe(1029)
    await clock.advance(1)
    expect(log.at(-1)).toEqual(['c', 1030])
    expect(clock.next).toBeUndefined()
  })

  it('runs what a timer sets going before the next timer, also timers of its own', async () => {
    const clock = new VirtualClock({ now: 0 })
    const log: string[] = []
    clock.setTimer(async () => {
      await null
      clock.setTimer(() => log.push(`inner ${clock.now()}`), 5)
      await null
      log.push(`promise ${clock.now()}`)
    }, 10)
    clock.setTimer(() => log.push(`later ${clock.now()}`), 20)
    await clock.advance(100)
    expect(log).toEqual(['promise 10', 'inner 15', 'later 20'])
    expect(clock.now()).toBe(100)
  })

  it('advances until a condition holds, or says that it never did', async () => {
    const clock = new VirtualClock({ now: 0 })
    let hit = false
    clock.setTimer(() => {
      hit = true
    }, 500)
    expect(await clock.until(() => hit, 499)).toBe(false)
    expect(clock.now()).toBe(0)
    expect(await clock.until(() => hit)).toBe(true)
    expect(clock.now()).toBe(500)
    expect(await clock.until(() => false)).toBe(false)
  })

  it('runs a timer of negative time at once, never in the past', async () => {
    const clock = new VirtualClock({ now: 100 })
    let at = 0
    clock.setTimer(() => {
      at = clock.now()
    }, -50)
    await clock.advance(0)
    expect(at).toBe(100)
  })
})
