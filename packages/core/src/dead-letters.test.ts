import { describe, expect, it } from 'vitest'
import { createTestBus } from './testing/index.js'

describe('redrive and circuits', () => {
  const options = {
    group: 'g',
    order: 'key',
    onKeyFailure: 'park',
    retry: { attempts: 1 },
  } as const

  it('parks again, in order, what is redriven while its circuit is still open', async () => {
    await using bus = await createTestBus()
    let failing = true
    const seen: unknown[] = []
    await bus.subscribe('orders', options, (n) => {
      seen.push(n)
      if (failing) throw new Error('no')
    })
    for (let n = 0; n < 3; n++) await bus.publish('orders', n, { id: `${n}`, key: 'k' })
    await bus.deadLettered({ count: 3 })
    failing = false
    const letters = bus.deadLetters('orders', 'g')
    expect(await letters.redrive()).toBe(3)
    await bus.deadLettered({ count: 6 })
    const ids = []
    for await (const { id, failure } of letters.list()) ids.push([id, failure.reason])
    expect(ids).toEqual([
      ['0', 'parked'],
      ['1', 'parked'],
      ['2', 'parked'],
    ])
    expect(seen).toEqual([0])
    expect(await bus.circuits('orders', 'g').close('k', { redrive: true })).toBe(true)
    await bus.handled({ count: 3 })
    expect(seen).toEqual([0, 0, 1, 2])
  })

  it('redrives a key whose circuit is not open as well, and nothing of other keys', async () => {
    await using bus = await createTestBus()
    let failing = true
    await bus.subscribe('orders', { ...options, onKeyFailure: 'skip' }, () => {
      if (failing) throw new Error('no')
    })
    await bus.publish('orders', 1, { key: 'a' })
    await bus.publish('orders', 2, { key: 'b' })
    await bus.deadLettered({ count: 2 })
    failing = false
    expect(await bus.circuits('orders', 'g').close('a', { redrive: true })).toBe(false)
    await bus.handled({ key: 'a' })
    expect(await bus.deadLetters('orders', 'g').count({ key: 'b' })).toBe(1)
  })

  it('survives deletion of what was listed, while it is being listed', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g', retry: { attempts: 1 } }, () => {
      throw new Error('no')
    })
    for (let n = 0; n < 5; n++) await bus.publish('orders', n, { id: `${n}` })
    await bus.deadLettered({ count: 5 })
    const letters = bus.deadLetters('orders', 'g')
    const seen = []
    for await (const { id } of letters.list()) {
      seen.push(id)
      await letters.discard({ id })
    }
    expect(seen).toEqual(['0', '1', '2', '3', '4'])
    expect(await letters.count()).toBe(0)
  })

  it('keeps a failing redriven message: a new dead letter with new times, attempts counted anew', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g', retry: { attempts: 2 } }, () => {
      throw new Error('no')
    })
    const { id } = await bus.publish('orders', 1)
    await bus.deadLettered()
    await bus.advance(3_600_000)
    const redrivenAt = bus.clock.now()
    const letters = bus.deadLetters('orders', 'g')
    await letters.redrive()
    await bus.deadLettered({ count: 2 })
    expect(await letters.count()).toBe(1)
    expect((await letters.get(id))!.failure).toMatchObject({
      attempts: 2,
      firstFailedAt: redrivenAt,
      lastFailedAt: redrivenAt + 1000,
    })
  })

  it('tells of a where that throws, and loses nothing by it', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g' }, () => {})
    const filter = {
      where: () => {
        throw new RangeError('a bug in where')
      },
    }
    await bus.subscribe('failing', { group: 'g', retry: { attempts: 1 } }, () => {
      throw new Error('no')
    })
    await bus.publish('failing', 1)
    await bus.deadLettered()
    await expect(bus.deadLetters('failing', 'g').redrive(filter)).rejects.toMatchObject({
      code: 'LONGSHORE_OPTION',
      message: expect.stringMatching(/the where of a dead-letter filter threw: a bug in where/),
    })
    // And loses none of them by it.
    expect(await bus.deadLetters('failing', 'g').count()).toBe(1)
  })
})
