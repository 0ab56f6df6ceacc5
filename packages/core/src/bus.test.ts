import { describe, expect, it } from 'vitest'
import { createTestBus } from './testing/index.js'

describe('close', () => {
  it('refuses a timeout that is no duration, by rejecting, and stays open', async () => {
    await using bus = await createTestBus()
    const subscription = await bus.subscribe('orders', { group: 'g' }, () => {})
    for (const timeout of ['x', -1, Number.NaN]) {
      for (const close of [
        () => bus.close({ timeout: timeout as never }),
        () => subscription.close({ timeout: timeout as never }),
      ]) {
        // Not thrown at the call: whoever writes close().catch() must get it.
        let closing: Promise<unknown> | undefined
        expect(() => {
          closing = close()
          closing.catch(() => {})
        }).not.toThrow()
        await expect(closing).rejects.toMatchObject({
          code: 'LONGSHORE_OPTION',
          message: expect.stringMatching(/close timeout is .*; give milliseconds/),
        })
      }
    }
    await bus.publish('orders', 1)
    await bus.handled()
  })

  it('refuses unknown options', async () => {
    await using bus = await createTestBus()
    const subscription = await bus.subscribe('orders', { group: 'g' }, () => {})
    const refusal = {
      code: 'LONGSHORE_UNKNOWN_OPTION',
      message: expect.stringMatching(/did you mean 'timeout'\?/),
    }
    await expect(bus.close({ timout: 5 } as never)).rejects.toMatchObject(refusal)
    await expect(subscription.close({ timout: 5 } as never)).rejects.toMatchObject(refusal)
    await expect(
      bus.consume('orders', { group: 'g' }).close({ timout: 5 } as never),
    ).rejects.toMatchObject(refusal)
  })

  it('tells when it begins and how it ended', async () => {
    await using bus = await createTestBus()
    const told: unknown[] = []
    bus.on('closing', (event) => told.push(event))
    bus.on('closed', (event) => told.push(event))
    await bus.subscribe('orders', { group: 'g' }, () => new Promise(() => {}))
    await bus.publish('orders', 1)
    await bus.advance(0)
    await bus.close({ timeout: 100 })
    expect(told).toEqual([{ driver: 'memory' }, { driver: 'memory', drained: false, abandoned: 1 }])
  })

  it('closes all subscriptions at the same time, within one timeout', async () => {
    await using bus = await createTestBus()
    for (let n = 0; n < 5; n++) {
      await bus.subscribe(`topic-${n}`, { group: 'g' }, () => new Promise(() => {}))
      await bus.publish(`topic-${n}`, 1)
    }
    await bus.advance(0)
    const start = bus.clock.now()
    expect(await bus.close({ timeout: '10s' })).toEqual({ drained: false, abandoned: 5 })
    expect(bus.clock.now() - start).toBe(10_000)
  })
})

describe('a handler that settles wrongly', () => {
  it('gets a typed error for a delay that is none, which fails the attempt', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g', retry: { attempts: 1 } }, (_, context) =>
      context.retry('soon' as never),
    )
    await bus.publish('orders', 1)
    expect(await bus.deadLettered()).toMatchObject([
      { error: { code: 'LONGSHORE_OPTION', message: expect.stringMatching(/"soon"/) } },
    ])
  })

  it('gets a typed error for a reason that there is not', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g', retry: { attempts: 1 } }, (_, context) =>
      context.deadLetter(new Error('x'), 'tired' as never),
    )
    await bus.publish('orders', 1)
    expect(await bus.deadLettered()).toMatchObject([
      { reason: 'exhausted', error: { code: 'LONGSHORE_OPTION' } },
    ])
  })
})

describe('a half-open circuit', () => {
  it('keeps the true reason of a trial that is unreadable', async () => {
    await using bus = await createTestBus()
    const options = {
      group: 'g',
      order: 'key',
      onKeyFailure: 'park',
      park: { coolDown: '1m' },
    } as const
    await bus.subscribe('orders', options, () => {})
    await bus.native().broker.circuits.open('orders', 'g', 'k', 'earlier')
    await bus.advance(60_000)
    bus.native().broker.publish('orders', new Uint8Array([1]), { key: 'k' })
    expect(await bus.deadLettered({ within: 0 })).toMatchObject([{ reason: 'undecodable' }])
  })
})
