import { describe, expect, it } from 'vitest'
import type { ConsumeOptions, SubscribeBatchOptions } from '../api.js'
import { LongshoreError } from '../errors.js'
import { createTestBus } from '../testing/index.js'

const wrong: { what: string; given: object; code?: string; cure: RegExp }[] = [
  {
    what: 'an unknown option',
    given: { concurency: 5 },
    code: 'LONGSHORE_UNKNOWN_OPTION',
    cure: /\('orders'\): there is no option 'concurency'; did you mean 'concurrency'\?/,
  },
  {
    what: 'an unknown option of retry',
    given: { retry: { attemts: 5 } },
    code: 'LONGSHORE_UNKNOWN_OPTION',
    cure: /retry: there is no option 'attemts'; did you mean 'attempts'\?/,
  },
  {
    what: 'an unknown option of deadLetter',
    given: { deadLetter: { stack: 1 } },
    code: 'LONGSHORE_UNKNOWN_OPTION',
    cure: /deadLetter: there is no option 'stack'; known are: keep, maxStack/,
  },
  {
    what: 'an unknown option of killSwitch',
    given: { killSwitch: { rate: 1 } },
    code: 'LONGSHORE_UNKNOWN_OPTION',
    cure: /killSwitch: there is no option 'rate'; /,
  },
  {
    what: 'an unknown option of park',
    given: { order: 'key', onKeyFailure: 'park', park: { cooldown: 5 } },
    code: 'LONGSHORE_UNKNOWN_OPTION',
    cure: /park: there is no option 'cooldown'; did you mean 'coolDown'\?/,
  },
  {
    what: 'no group',
    given: { group: undefined },
    code: 'LONGSHORE_NAME',
    cure: /group name; use/,
  },
  {
    what: 'a group name with a space',
    given: { group: 'my group' },
    code: 'LONGSHORE_NAME',
    cure: /"my group" is no valid group name; use 1 to 100 letters, digits/,
  },
  {
    what: 'a group name that is too long',
    given: { group: 'g'.repeat(101) },
    code: 'LONGSHORE_NAME',
    cure: /use 1 to 100/,
  },
  {
    what: 'an order that there is not',
    given: { order: 'keys' },
    cure: /order is "keys"; it is one of 'none', 'key'/,
  },
  {
    what: 'a way to fail that there is not',
    given: { order: 'key', onKeyFailure: 'hold' },
    cure: /onKeyFailure is "hold"; it is one of 'block', 'park', 'skip'/,
  },
  {
    what: 'onKeyFailure without an order',
    given: { onKeyFailure: 'skip' },
    cure: /onKeyFailure needs order: 'key'/,
  },
  {
    what: 'park without onKeyFailure',
    given: { order: 'key', park: { coolDown: '1m' } },
    cure: /park needs order: 'key' and onKeyFailure: 'park'/,
  },
  {
    what: 'a cool-down that is no duration',
    given: { order: 'key', onKeyFailure: 'park', park: { coolDown: 'soon' } },
    cure: /park\.coolDown is "soon"; give milliseconds/,
  },
  {
    what: 'a concurrency of 0',
    given: { concurrency: 0 },
    cure: /concurrency is 0; it must be a whole number ≥ 1/,
  },
  { what: 'half a handler', given: { concurrency: 1.5 }, cure: /concurrency is 1\.5/ },
  { what: 'a prefetch of 0', given: { prefetch: 0 }, cure: /prefetch is 0; it must be a whole/ },
  {
    what: 'a start that there is not',
    given: { from: 'beginning' },
    cure: /from is 'latest', 'earliest' or a valid Date/,
  },
  { what: 'an invalid Date', given: { from: new Date('x') }, cure: /or a valid Date/ },
  { what: 'a lease that is too short', given: { lease: 10 }, cure: /at least 30 ms/ },
  { what: 'a lease that is no duration', given: { lease: 'x' }, cure: /lease is "x"/ },
  { what: 'no attempts', given: { retry: { attempts: 0 } }, cure: /retry\.attempts is 0/ },
  {
    what: 'infinitely many attempts',
    given: { retry: { attempts: Number.POSITIVE_INFINITY } },
    cure: /retry\.attempts is Infinity; it must be a whole number/,
  },
  {
    what: 'a factor below 1',
    given: { retry: { factor: 0.5 } },
    cure: /retry\.factor is 0\.5; it must be a number ≥ 1/,
  },
  { what: 'an infinite factor', given: { retry: { factor: 1 / 0 } }, cure: /factor is Infinity/ },
  {
    what: 'jitter above 1',
    given: { retry: { jitter: 1.1 } },
    cure: /retry\.jitter is 1\.1; it must be a share from 0 to 1, or 'full'/,
  },
  { what: 'negative jitter', given: { retry: { jitter: -0.1 } }, cure: /jitter is -0\.1/ },
  { what: 'jitter that is a word', given: { retry: { jitter: 'some' } }, cure: /jitter is some/ },
  { what: 'a base that is no duration', given: { retry: { base: '1x' } }, cure: /retry\.base is/ },
  { what: 'a max that is no duration', given: { retry: { max: -1 } }, cure: /retry\.max is -1/ },
  { what: 'negative immediate', given: { retry: { immediate: -1 } }, cure: /immediate is -1/ },
  { what: 'maxDeliveries 0', given: { retry: { maxDeliveries: 0 } }, cure: /maxDeliveries is 0/ },
  {
    what: 'retryable that is no function',
    given: { retry: { retryable: true } },
    cure: /retry\.retryable/,
  },
  { what: 'retry that is null', given: { retry: null }, cure: /retry/ },
  { what: 'no routes', given: { routes: [] }, cure: /routes is .*at least one route/ },
  {
    what: 'routes that are no array',
    given: { routes: 'a.*' },
    cure: /routes is "a\.\*"; it is an/,
  },
  { what: 'a route with an empty word', given: { routes: ['a..b'] }, cure: /routes has "a\.\.b"/ },
  { what: 'a maxStack below 0', given: { deadLetter: { maxStack: -1 } }, cure: /maxStack is -1/ },
  {
    what: 'a failure rate of 0',
    given: { killSwitch: { failureRate: 0 } },
    cure: /killSwitch\.failureRate is 0; it must be above 0 and at most 1/,
  },
  {
    what: 'a failure rate above 1',
    given: { killSwitch: { failureRate: 50 } },
    cure: /failureRate is 50/,
  },
  { what: 'a minimum of 0', given: { killSwitch: { minimum: 0 } }, cure: /minimum is 0/ },
  { what: 'killSwitch null', given: { killSwitch: null }, cure: /killSwitch/ },
  {
    what: 'middleware that is no array',
    given: { middleware: () => {} },
    cure: /middleware is an array of functions \(context, next\)/,
  },
  {
    what: 'middleware that is no function',
    given: { middleware: ['log'] },
    cure: /middleware is an array of functions/,
  },
]

describe('the options of a subscription', () => {
  for (const { what, given, code = 'LONGSHORE_OPTION', cure } of wrong) {
    it(`refuses ${what}, in subscribe, subscribeBatch and consume alike`, async () => {
      await using bus = await createTestBus()
      const options = { group: 'billing', ...given } as ConsumeOptions
      for (const call of [
        () => bus.subscribe('orders', options, () => {}),
        () => bus.subscribeBatch('orders', options, () => {}),
        async () => bus.consume('orders', options),
      ]) {
        const error = await call().catch((thrown: unknown) => thrown)
        expect(error).toBeInstanceOf(LongshoreError)
        expect(error).toMatchObject({ code, message: expect.stringMatching(cure) })
      }
      expect(bus.health().subscriptions).toEqual([])
    })
  }

  it('refuses a timeout that is no duration, and any for a loop, whose pace is its own', async () => {
    await using bus = await createTestBus()
    const options = { group: 'billing', timeout: '-5s' } as never
    for (const call of [
      () => bus.subscribe('orders', options, () => {}),
      () => bus.subscribeBatch('orders', options, () => {}),
    ]) {
      await expect(call()).rejects.toThrow(/timeout is "-5s"/)
    }
    expect(() => bus.consume('orders', options)).toThrow(
      /consume\('orders'\): there is no option 'timeout'/,
    )
  })

  it('refuses batch options where there are no batches', async () => {
    await using bus = await createTestBus()
    const options: SubscribeBatchOptions = { group: 'billing', batchSize: 5 }
    await expect(bus.subscribe('orders', options, () => {})).rejects.toMatchObject({
      code: 'LONGSHORE_UNKNOWN_OPTION',
      message: expect.stringMatching(/there is no option 'batchSize'/),
    })
  })

  it('refuses wrong batch options', async () => {
    await using bus = await createTestBus()
    for (const [given, cure] of [
      [{ batchSize: 0 }, /batchSize is 0; it must be a whole number ≥ 1/],
      [{ batchWait: 'x' }, /batchWait is "x"; give milliseconds/],
      [{ batchsize: 2 }, /did you mean 'batchSize'\?/],
    ] as const) {
      const options = { group: 'billing', ...given } as SubscribeBatchOptions
      const error = await bus.subscribeBatch('orders', options, () => {}).catch((e) => e)
      expect(error).toBeInstanceOf(LongshoreError)
      expect(error.message).toMatch(cure)
    }
  })

  it('refuses a subscription without options or handler', async () => {
    await using bus = await createTestBus()
    const none = undefined as never
    const group = { group: 'billing' }
    for (const [call, cure] of [
      [() => bus.subscribe('orders', none, () => {}), /needs options with at least a group/],
      [() => bus.subscribeBatch('orders', none, () => {}), /needs options with at least a group/],
      [() => bus.subscribe('orders', group, none), /subscribe\('orders'\) needs a handler/],
      [
        () => bus.subscribeBatch('orders', group, none),
        /subscribeBatch\('orders'\) needs a handler/,
      ],
    ] as const) {
      const error = await call().catch((thrown: unknown) => thrown)
      expect(error).toMatchObject({
        code: 'LONGSHORE_OPTION',
        message: expect.stringMatching(cure),
      })
    }
  })

  it('refuses an invalid topic name', async () => {
    await using bus = await createTestBus()
    await expect(bus.subscribe('a b', { group: 'g' }, () => {})).rejects.toMatchObject({
      code: 'LONGSHORE_NAME',
    })
    expect(() => bus.deadLetters('a b', 'g')).toThrow(/no valid topic name/)
    expect(() => bus.deadLetters('a', 'g g')).toThrow(/no valid group name/)
    expect(() => bus.circuits('a', 'g g')).toThrow(/no valid group name/)
  })

  it('never has more than prefetch deliveries unsettled', async () => {
    await using bus = await createTestBus()
    const most = async (options: Partial<ConsumeOptions>, group: string) => {
      await bus.subscribe('orders', { group, ...options }, () => new Promise(() => {}))
      for (let n = 0; n < 200; n++) await bus.publish('orders', n, { key: `${n}` })
      await bus.advance(0)
      return (await bus.admin.stats('orders', group)).inFlight
    }
    expect(await most({}, 'default')).toBe(2)
    expect(await most({ concurrency: 5 }, 'five')).toBe(10)
    expect(await most({ concurrency: 5, prefetch: 7 }, 'given')).toBe(7)
    expect(await most({ order: 'key' }, 'key')).toBe(64)
    await bus.close({ timeout: 0 })
  })

  it('never runs more handlers than concurrency says, and does run as many', async () => {
    await using bus = await createTestBus()
    let running = 0
    let most = 0
    await bus.subscribe('orders', { group: 'g', concurrency: 7, prefetch: 50 }, async () => {
      most = Math.max(most, ++running)
      await new Promise<void>((resolve) => bus.clock.setTimer(resolve, 10))
      running--
    })
    for (let n = 0; n < 100; n++) await bus.publish('orders', n)
    await bus.handled({ count: 100 })
    expect(most).toBe(7)
  })
})
