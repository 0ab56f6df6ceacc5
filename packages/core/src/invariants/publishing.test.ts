import { describe, expect, it } from 'vitest'
import { topic } from '../index.js'
import type { WireMessage } from '../message.js'
import { createTestBus, type TestBus } from '../testing/index.js'

/** Whether a promise has come to an end, once everything that is ready has run. */
async function ended(bus: TestBus, promise: Promise<unknown>): Promise<boolean> {
  let over = false
  const note = () => {
    over = true
  }
  promise.then(note, note)
  await bus.advance(0)
  return over
}

/** Keeps a rejection that is looked at later from counting as unhandled. */
function later<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {})
  return promise
}

describe('invariant 3: publish resolves only after confirmation; an unknown outcome is repeated, then called unknown', () => {
  it('does not resolve before the broker confirmed', async () => {
    await using bus = await createTestBus()
    const stored: WireMessage[] = []
    let lose = true
    bus.native().broker.tap('orders', (message) => stored.push(message))
    bus.native().broker.faults.publish = () => (lose ? 'lose' : undefined)
    const publishing = later(bus.publish('orders', 1))
    await bus.advance(5000)
    expect(await ended(bus, publishing)).toBe(false)
    expect(stored).toHaveLength(0)
    lose = false
    await bus.advance(5000)
    const { id } = await publishing
    expect(stored.map((message) => message.id)).toEqual([id])
  })

  it('repeats a publish whose confirmation was lost under the same id', async () => {
    await using bus = await createTestBus()
    const stored: WireMessage[] = []
    let lost = 3
    bus.native().broker.tap('orders', (message) => stored.push(message))
    bus.native().broker.faults.publish = () => (lost-- > 0 ? 'lose-confirm' : undefined)
    const publishing = later(bus.publish('orders', { n: 1 }, { key: 'k', headers: { a: 'b' } }))
    await bus.advance(10_000)
    const { id } = await publishing
    expect(stored).toHaveLength(4)
    for (const message of stored) expect(message).toEqual(stored[0])
    expect(stored[0]).toMatchObject({ id, key: 'k', headers: { a: 'b' } })
  })

  it('rejects with OutcomeUnknownError at the deadline, not before, and repeats no more', async () => {
    await using bus = await createTestBus()
    let tries = 0
    bus.native().broker.faults.publish = () => {
      tries++
      return 'lose-confirm'
    }
    const publishing = later(bus.publish('orders', 1, { id: 'mine', deadline: '5s' }))
    await bus.advance(4999)
    expect(await ended(bus, publishing)).toBe(false)
    await bus.advance(1)
    await expect(publishing).rejects.toMatchObject({
      code: 'LONGSHORE_OUTCOME_UNKNOWN',
      name: 'OutcomeUnknownError',
      id: 'mine',
      message: expect.stringMatching(/may or may not have taken it; last: /),
      cause: { code: 'LONGSHORE_CONNECTION' },
    })
    const until = tries
    await bus.advance(60_000)
    expect(tries).toBe(until)
  })

  it('uses the deadline of the bus where the publish gives none', async () => {
    await using bus = await createTestBus({ publish: { deadline: '2s' } })
    bus.native().broker.faults.publish = () => 'lose'
    const publishing = later(bus.publish('orders', 1))
    await bus.advance(1999)
    expect(await ended(bus, publishing)).toBe(false)
    await bus.advance(1)
    await expect(publishing).rejects.toMatchObject({ code: 'LONGSHORE_OUTCOME_UNKNOWN' })
  })

  it('rejects with NotSentError, not unknown, when the message surely never left', async () => {
    await using bus = await createTestBus()
    bus.native().broker.stop()
    const publishing = later(bus.publish('orders', 1, { deadline: '5s' }))
    await bus.advance(5000)
    await expect(publishing).rejects.toMatchObject({
      code: 'LONGSHORE_NOT_SENT',
      message: expect.stringMatching(/was not sent: its deadline passed; last: .*is down/),
    })
  })

  it('says unknown when a later try was unsent but an earlier one may have been taken', async () => {
    await using bus = await createTestBus()
    const { broker } = bus.native()
    broker.faults.publish = () => 'lose-confirm'
    const publishing = later(bus.publish('orders', 1, { deadline: '5s' }))
    await bus.advance(10)
    broker.stop()
    await bus.advance(5000)
    await expect(publishing).rejects.toMatchObject({ code: 'LONGSHORE_OUTCOME_UNKNOWN' })
  })

  it('rejects at once what the broker refuses, and does not repeat it', async () => {
    await using bus = await createTestBus()
    let tries = 0
    bus.native().broker.faults.publish = () => {
      tries++
      return 'reject'
    }
    await expect(bus.publish('orders', 1, { id: 'mine' })).rejects.toMatchObject({
      code: 'LONGSHORE_REJECTED',
      id: 'mine',
    })
    await bus.advance(60_000)
    expect(tries).toBe(1)
  })

  it('says unknown at the deadline when the broker never answers', async () => {
    await using bus = await createTestBus()
    bus.native().crash()
    const publishing = later(bus.publish('orders', 1, { deadline: '3s' }))
    await bus.advance(3000)
    await expect(publishing).rejects.toMatchObject({ code: 'LONGSHORE_OUTCOME_UNKNOWN' })
  })
})

describe('invariant 4: the id never changes', () => {
  it('keeps id, key, headers, body and timestamp through delay, retries, dead letter and redrive', async () => {
    await using bus = await createTestBus()
    const orders = topic<{ n: number }>('orders')
    const seen: object[] = []
    let failing = true
    await bus.subscribe(
      orders,
      { group: 'billing', retry: { attempts: 3 } },
      (_, { message, attempt }) => {
        seen.push({ ...message, attempt })
        if (failing) throw new Error('no')
      },
    )
    const timestamp = bus.clock.now()
    await bus.publish(
      orders,
      { n: 1 },
      { id: 'mine', key: 'k', headers: { 'X-A': '1' }, delay: '1m', correlationId: 'c' },
    )
    await bus.deadLettered({ id: 'mine' })
    const letter = await bus.deadLetters(orders, 'billing').get('mine')
    expect(letter).toMatchObject({ id: 'mine', key: 'k', headers: { 'X-A': '1' }, timestamp })
    expect(JSON.parse(Buffer.from(letter!.body).toString())).toEqual({ n: 1 })
    failing = false
    expect(await bus.deadLetters(orders, 'billing').redrive()).toBe(1)
    await bus.handled({ id: 'mine' })
    expect(seen).toEqual(
      [1, 2, 3, 1].map((attempt) => ({
        id: 'mine',
        topic: 'orders',
        key: 'k',
        payload: { n: 1 },
        headers: { 'X-A': '1' },
        contentType: 'application/json',
        timestamp,
        correlationId: 'c',
        causationId: undefined,
        attempt,
      })),
    )
  })

  it('keeps the id that it made up itself, in process retries as well', async () => {
    await using bus = await createTestBus({ memory: { partitions: 8 } })
    const seen: string[] = []
    await bus.subscribe(
      'orders',
      { group: 'billing', order: 'key', retry: { attempts: 3, immediate: 1 } },
      (_, { message }) => {
        seen.push(message.id)
        throw new Error('no')
      },
    )
    const { id } = await bus.publish('orders', 1, { key: 'k' })
    await bus.deadLettered({ id })
    expect(seen).toEqual(Array(6).fill(id))
  })

  it('keeps the id in every outcome of a batch', async () => {
    await using bus = await createTestBus()
    bus.native().broker.faults.publish = ({ id }) => (id === 'b' ? 'reject' : undefined)
    const outcomes = await bus.publishBatch('orders', [
      { id: 'a', payload: 1 },
      { id: 'b', payload: 2 },
      { id: 'c', payload: 3 },
    ])
    expect(outcomes.map(({ id, status }) => [id, status])).toEqual([
      ['a', 'confirmed'],
      ['b', 'failed'],
      ['c', 'confirmed'],
    ])
  })
})

describe('invariant 12: reconnecting restores everything; the application sees only latency', () => {
  it('confirms what was published while the broker was down, in order, each once', async () => {
    await using bus = await createTestBus()
    const got: unknown[] = []
    await bus.subscribe('orders', { group: 'billing' }, (n) => void got.push(n))
    bus.native().broker.stop()
    const publishing = Promise.all(Array.from({ length: 100 }, (_, n) => bus.publish('orders', n)))
    await bus.advance(2000)
    expect(bus.health().status).toBe('down')
    bus.native().broker.start()
    await bus.handled({ count: 100 })
    await publishing
    expect(got).toEqual(Array.from({ length: 100 }, (_, n) => n))
    expect(bus.health().status).toBe('up')
  })

  it('goes on delivering after the connection was cut, and loses and reorders nothing', async () => {
    await using bus = await createTestBus()
    const { broker } = bus.native()
    const got: number[] = []
    await bus.subscribe<number>('orders', { group: 'billing' }, (n) => void got.push(n))
    for (let n = 0; n < 50; n++) {
      await bus.publish('orders', n)
      if (n % 10 === 5) broker.sever()
      // The publish after a cut waits for the connection.
      const next = bus.publish('orders', n + 0.5)
      await bus.advance(100)
      await next
    }
    await bus.handled({ count: 100 })
    expect(got).toEqual(Array.from({ length: 100 }, (_, i) => i / 2))
  })

  it('goes on by itself after a restart of the broker, delayed messages included', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'billing' }, () => {})
    const { id } = await bus.publish('orders', 1, { delay: '1h' })
    bus.native().broker.restart()
    await bus.handled({ id })
    const states: string[] = []
    bus.on('connection', ({ state }) => states.push(state))
    bus.native().broker.stop()
    await bus.advance(60_000)
    bus.native().broker.start()
    await bus.publish('orders', 2)
    await bus.handled({ count: 2 })
    expect(states).toEqual(['down', 'up'])
  })

  it('makes a topic and its group anew when they were deleted behind its back', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'billing' }, () => {})
    await bus.publish('orders', 1)
    await bus.handled()
    await bus.admin.deleteTopic('orders')
    await bus.publish('orders', 2)
    await bus.handled({ count: 2 })
    await bus.admin.deleteGroup('orders', 'billing')
    await bus.publish('orders', 3)
    await bus.handled({ count: 3 })
  })
})
