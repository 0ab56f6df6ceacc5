import { describe, expect, it } from 'vitest'
import type { BatchEntry, ConsumeOptions } from '../api.js'
import type { PublishMiddleware } from '../index.js'
import { createTestBus, type TestBus } from '../testing/index.js'

/** Collects what a group's handler gets. */
async function collect(bus: TestBus, group: string, options: Partial<ConsumeOptions>) {
  const seen: unknown[] = []
  await bus.subscribe('orders', { group, ...options }, (payload) => void seen.push(payload))
  return seen
}

const routes = ['eu.created', 'eu.paid', 'us.created', undefined]

/** One message for each of the routes, which is its payload, too. */
async function publishAll(bus: TestBus, more: Partial<BatchEntry<unknown>> = {}) {
  const entries = routes.map((route) => ({
    payload: route ?? 'none',
    ...(route && { route }),
    ...more,
  }))
  for (const { status } of await bus.publishBatch('orders', entries)) {
    expect(status).toBe('confirmed')
  }
}

describe('memory: routes', () => {
  it('gives a group what matches its routes, and one without routes everything', async () => {
    await using bus = await createTestBus()
    const all = await collect(bus, 'all', {})
    const any = await collect(bus, 'any', { routes: ['#'] })
    const eu = await collect(bus, 'eu', { routes: ['eu.*', 'eu.paid'] })
    const created = await collect(bus, 'created', { routes: ['us.created', 'eu.created'] })
    await publishAll(bus)
    await bus.advance(0)
    expect(all).toEqual(['eu.created', 'eu.paid', 'us.created', 'none'])
    expect(any).toEqual(all)
    expect(eu).toEqual(['eu.created', 'eu.paid'])
    expect(created).toEqual(['eu.created', 'us.created'])
  })

  it('works alike for consume and subscribeBatch', async () => {
    await using bus = await createTestBus()
    const batches: unknown[] = []
    await bus.subscribeBatch('orders', { group: 'b', routes: ['eu.*'], batchSize: 2 }, (eu) => {
      batches.push(...eu)
    })
    const loop = bus.consume('orders', { group: 'c', routes: ['us.#'] })[Symbol.asyncIterator]()
    const first = loop.next()
    await bus.advance(0)
    await publishAll(bus)
    await bus.advance(0)
    expect(batches).toEqual(['eu.created', 'eu.paid'])
    const { value } = await first
    expect(value.payload).toBe('us.created')
    await value.ack()
    await loop.return?.()
  })

  it('keeps the route of delayed messages and of messages for late groups', async () => {
    await using bus = await createTestBus()
    const seen = await collect(bus, 'early', { routes: ['eu.*'] })
    await publishAll(bus, { delay: '1m' })
    await bus.advance('1m')
    expect(seen).toEqual(['eu.created', 'eu.paid'])
    const late = await collect(bus, 'late', { routes: ['*.created'], from: 'earliest' })
    await bus.advance(0)
    expect(late).toEqual(['eu.created', 'us.created'])
  })

  it('gives retries and redriven letters to the group, whatever the route', async () => {
    await using bus = await createTestBus()
    const other = await collect(bus, 'other', { routes: ['#'] })
    const attempts: number[] = []
    const options = { group: 'g', routes: ['eu.paid'], retry: { attempts: 2, base: '1s' } } as const
    await bus.subscribe('orders', options, (_, { attempt }) => {
      attempts.push(attempt)
      if (attempts.length < 3) throw new Error('not yet')
    })
    await publishAll(bus)
    await bus.deadLettered({ group: 'g' })
    expect(await bus.deadLetters('orders', 'g').redrive()).toBe(1)
    await bus.advance(0)
    expect(attempts).toEqual([1, 2, 1])
    expect(other).toHaveLength(4)
  })

  it('refuses a member, or a creation, of an existing group with other routes', async () => {
    await using bus = await createTestBus()
    const conflict = (says: RegExp) => ({
      code: 'LONGSHORE_CONFLICT',
      message: expect.stringMatching(says),
    })
    await bus.admin.createGroup('orders', 'g', {
      order: 'none',
      from: 'latest',
      routes: ['b', 'a'],
    })
    await expect(collect(bus, 'g', {})).rejects.toMatchObject(
      conflict(/group 'g' of topic 'orders' exists with routes a, b, not no routes/),
    )
    await expect(collect(bus, 'g', { routes: ['a'] })).rejects.toMatchObject(
      conflict(/not routes a/),
    )
    await expect(
      bus.admin.createGroup('orders', 'g', { order: 'none', from: 'latest', routes: ['c'] }),
    ).rejects.toMatchObject(conflict(/not routes c/))
    await bus.admin.createGroup('orders', 'g', {
      order: 'none',
      from: 'latest',
      routes: ['a', 'b'],
    })
    await collect(bus, 'g', { routes: ['a', 'b', 'a'] })
    await collect(bus, 'plain', {})
    await expect(collect(bus, 'plain', { routes: ['undefined'] })).rejects.toMatchObject(
      conflict(/exists with no routes, not routes undefined/),
    )
  })

  it('makes a deleted group anew with the routes of its members', async () => {
    await using bus = await createTestBus()
    const seen = await collect(bus, 'g', { routes: ['eu.*'] })
    await bus.admin.deleteGroup('orders', 'g')
    await publishAll(bus)
    await bus.advance(0)
    expect(seen).toEqual(['eu.created', 'eu.paid'])
  })

  it('shows middleware the route, and hands it on', async () => {
    const shown: unknown[] = []
    const look: PublishMiddleware = (context, next) => {
      shown.push(context.route)
      return next(context)
    }
    await using bus = await createTestBus({ publish: { middleware: [look] } })
    const seen = await collect(bus, 'g', { routes: ['a'] })
    await bus.publish('orders', 1, { route: 'a' })
    await bus.publish('orders', 2)
    await bus.publishBatch('orders', [{ payload: 3, route: 'a' }])
    await bus.advance(0)
    expect(shown).toEqual(['a', undefined, 'a'])
    expect(seen).toEqual([1, 3])
  })
})
