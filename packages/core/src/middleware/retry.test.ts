import { describe, expect, it } from 'vitest'
import { type ConsumeMiddleware, deadLetter, PermanentError, retry } from '../index.js'
import { createTestBus } from '../testing/index.js'

describe('a middleware in place of the retry policy', () => {
  it('retry() does what the policy does', async () => {
    await using bus = await createTestBus()
    const times: number[] = []
    const options = { group: 'g', retry: retry({ attempts: 3, base: '10s' }) }
    await bus.subscribe('orders', options, () => {
      times.push(bus.clock.now())
      throw new Error('no')
    })
    const start = bus.clock.now()
    await bus.publish('orders', 1)
    const [event] = await bus.deadLettered()
    expect(times.map((time) => time - start)).toEqual([0, 10_000, 30_000])
    expect(event).toMatchObject({ attempt: 3, reason: 'exhausted' })
    expect(await bus.retried({ count: 2 })).toMatchObject([
      { delayMs: 10_000 },
      { delayMs: 20_000 },
    ])
  })

  it('retry() lets through what is permanent, with its reason', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g', retry: retry() }, () => {
      throw new PermanentError('no')
    })
    await bus.publish('orders', 1)
    bus.native().broker.publish('orders', new Uint8Array([1]))
    const events = await bus.deadLettered({ count: 2 })
    expect(events.map(({ reason, attempt }) => [reason, attempt])).toEqual([
      ['permanent', 1],
      ['undecodable', 1],
    ])
  })

  it('retry() refuses a wrong policy at once', () => {
    expect(() => retry({ attempts: -1 })).toThrow(/retry\.attempts is -1/)
    expect(() => retry({ atempts: 1 } as never)).toThrow(/did you mean 'attempts'\?/)
  })

  it('sees failures of decoding and may decide on its own', async () => {
    await using bus = await createTestBus()
    const seen: string[] = []
    const own: ConsumeMiddleware = async (context, next) => {
      try {
        await next(context)
      } catch (error) {
        seen.push((error as Error).name)
        if (context.attempt === 1) await context.retry('1h', error)
        else throw error
      }
    }
    await bus.subscribe('orders', { group: 'g', retry: own }, () => {})
    bus.native().broker.publish('orders', new Uint8Array([1]))
    const [event] = await bus.deadLettered()
    expect(seen).toEqual(['DecodeError', 'DecodeError'])
    expect(event).toMatchObject({ attempt: 2, reason: 'undecodable' })
  })

  it('may look at the message before the handler, which still gets its payload', async () => {
    await using bus = await createTestBus()
    const ids: string[] = []
    const payloads: unknown[] = []
    const looking: ConsumeMiddleware = (context, next) => {
      ids.push(context.message.id)
      return next(context)
    }
    await bus.subscribe('orders', { group: 'g', retry: looking }, (payload, { message }) => {
      payloads.push(payload, message.payload)
    })
    const { id } = await bus.publish('orders', { n: 1 })
    await bus.handled()
    expect(ids).toEqual([id])
    expect(payloads).toEqual([{ n: 1 }, { n: 1 }])
  })

  it('that swallows an error acks the message', async () => {
    await using bus = await createTestBus()
    const swallowing: ConsumeMiddleware = async (context, next) => {
      try {
        await next(context)
      } catch {}
    }
    await bus.subscribe('orders', { group: 'g', retry: swallowing }, () => {
      throw new Error('no')
    })
    await bus.publish('orders', 1)
    await bus.handled()
  })

  it('tells of failed attempts, and counts them for the kill switch, as the policy does', async () => {
    await using bus = await createTestBus()
    await bus.subscribe(
      'orders',
      { group: 'g', retry: retry({ attempts: 2 }), killSwitch: { minimum: 4 } },
      () => {
        throw new Error('no')
      },
    )
    for (let n = 0; n < 4; n++) await bus.publish('orders', n)
    await bus.failed({ count: 4, within: 0 })
    expect(bus.health().subscriptions).toMatchObject([{ state: 'tripped' }])
  })
})

describe('a middleware in place of the dead-letter policy', () => {
  it('deadLetter() does what the policy does, after the retries', async () => {
    await using bus = await createTestBus()
    const options = { group: 'g', retry: { attempts: 2 }, deadLetter: deadLetter() }
    await bus.subscribe('orders', options, (payload) => {
      if (payload === 'permanent') throw new PermanentError('no')
      throw new Error('no')
    })
    await bus.publish('orders', 'normal')
    await bus.publish('orders', 'permanent')
    const events = await bus.deadLettered({ count: 2 })
    expect(events.map(({ reason, attempt }) => [reason, attempt])).toEqual([
      ['permanent', 1],
      ['exhausted', 2],
    ])
  })

  it('may send failed messages elsewhere', async () => {
    await using bus = await createTestBus()
    const elsewhere: ConsumeMiddleware = async (context, next) => {
      try {
        await next(context)
      } catch {
        await context.publish('graveyard', context.payload)
      }
    }
    await bus.subscribe('graveyard', { group: 'g' }, () => {})
    const options = { group: 'g', retry: { attempts: 2 }, deadLetter: elsewhere }
    await bus.subscribe('orders', options, () => {
      throw new Error('no')
    })
    const { id } = await bus.publish('orders', 1)
    const [event] = await bus.handled({ topic: 'graveyard' })
    expect(event!.message.causationId).toBe(id)
    expect(await bus.admin.stats('orders', 'g')).toEqual({
      ready: 0,
      delayed: 0,
      inFlight: 0,
      dead: 0,
    })
  })

  it("catches what passes the user's own policies: dead-lettered as 'escaped'", async () => {
    await using bus = await createTestBus()
    const letting: ConsumeMiddleware = (context, next) => next(context)
    for (const [group, custom] of [
      ['both', { deadLetter: letting, retry: letting }],
      ['dead-letter', { deadLetter: letting, retry: { attempts: 1 } }],
    ] as const) {
      await bus.subscribe('orders', { group, ...custom }, () => {
        throw new Error('no')
      })
    }
    await bus.publish('orders', 1)
    const events = await bus.deadLettered({ count: 2 })
    expect(events.map(({ reason, attempt }) => [reason, attempt])).toEqual([
      ['escaped', 1],
      ['escaped', 1],
    ])
  })

  it('that fails itself does not lose the message', async () => {
    await using bus = await createTestBus()
    const broken: ConsumeMiddleware = async (context, next) => {
      try {
        await next(context)
      } catch {
        throw new TypeError('the graveyard is closed')
      }
    }
    const options = { group: 'g', retry: { attempts: 1 }, deadLetter: broken }
    await bus.subscribe('orders', options, () => {
      throw new Error('no')
    })
    const { id } = await bus.publish('orders', 1)
    await bus.deadLettered({ id })
    const letter = await bus.deadLetters('orders', 'g').get(id)
    expect(letter!.failure).toMatchObject({
      reason: 'escaped',
      errorName: 'TypeError',
      errorMessage: 'the graveyard is closed',
    })
  })
})
