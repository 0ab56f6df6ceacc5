import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { RetryPolicy } from '../api.js'
import { DecodeError, PermanentError, ValidationError } from '../errors.js'
import { RetryLaterError } from '../index.js'
import { createTestBus, VirtualClock } from '../testing/index.js'
import { backoff, decide, describeFailure, resolveRetry } from './failure.js'

const at = (random: number) => new VirtualClock({ random: () => random })

const duration = fc.oneof(fc.nat(1e9), fc.double({ min: 0, max: 1e12, noNaN: true }))
const policies = fc
  .tuple(duration, duration, fc.double({ min: 1, max: 1e6, noNaN: true }))
  .map(([a, b, factor]) => ({ base: Math.min(a, b), max: Math.max(a, b), factor }))
const attempts = fc.oneof(fc.integer({ min: 1, max: 60 }), fc.integer({ min: 1, max: 1e9 }))
const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })

describe('backoff', () => {
  it('is min(max, base · factor^(attempt−1)), exactly, without jitter', () => {
    const policy = resolveRetry({ base: 100, factor: 3, max: 5000, jitter: 0 })
    expect([1, 2, 3, 4, 5, 6].map((attempt) => backoff(policy, attempt, at(0.9)))).toEqual([
      100, 300, 900, 2700, 5000, 5000,
    ])
  })

  it('is finite and within 0 and max for any policy, attempt and jitter', () => {
    fc.assert(
      fc.property(
        policies,
        attempts,
        chance,
        fc.oneof(fc.constant('full' as const), fc.double({ min: 0, max: 1, noNaN: true })),
        (policy, attempt, random, jitter) => {
          const delay = backoff(resolveRetry({ ...policy, jitter }), attempt, at(random))
          expect(Number.isFinite(delay)).toBe(true)
          expect(delay).toBeGreaterThanOrEqual(0)
          expect(delay).toBeLessThanOrEqual(policy.max)
        },
      ),
      { numRuns: 2000 },
    )
  })

  it('stays within the share of jitter around the delay, and passes max never', () => {
    fc.assert(
      fc.property(policies, attempts, chance, chance, (policy, attempt, random, jitter) => {
        const plain = backoff(resolveRetry({ ...policy, jitter: 0 }), attempt, at(random))
        const delay = backoff(resolveRetry({ ...policy, jitter }), attempt, at(random))
        expect(delay).toBeGreaterThanOrEqual(plain * (1 - jitter) * (1 - 1e-12))
        expect(delay).toBeLessThanOrEqual(Math.min(policy.max, plain * (1 + jitter) * (1 + 1e-12)))
      }),
      { numRuns: 2000 },
    )
  })

  it('takes full jitter from the whole range between 0 and the delay', () => {
    const policy = resolveRetry({ base: 1000, jitter: 'full' })
    expect(backoff(policy, 1, at(0))).toBe(0)
    expect(backoff(policy, 1, at(0.25))).toBe(250)
    expect(backoff(policy, 2, at(0.999))).toBeCloseTo(1998)
  })

  it('defaults to 1 s, doubling, ±10 %, at most 5 min', () => {
    const policy = resolveRetry()
    expect(backoff(policy, 1, at(0.5))).toBe(1000)
    expect(backoff(policy, 1, at(0))).toBe(900)
    expect(backoff(policy, 1, at(0.99999))).toBeCloseTo(1100, 1)
    expect(backoff(policy, 3, at(0.5))).toBe(4000)
    expect(backoff(policy, 30, at(0.99999))).toBe(300_000)
    expect(policy).toMatchObject({ attempts: 5, immediate: 0, maxDeliveries: 20 })
  })
})

describe('decide', () => {
  const decideOn = (policy: RetryPolicy, attempt: number, error: unknown) =>
    decide(resolveRetry(policy), attempt, error, at(0.5))

  it('gives up at the last attempt and never before, whatever their number', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1e6 }), attempts, (limit, attempt) => {
        const decision = decideOn({ attempts: limit }, attempt, new Error('x'))
        if (attempt >= limit)
          expect(decision).toEqual({ retryInMs: undefined, reason: 'exhausted' })
        else expect(decision.retryInMs).toBeGreaterThan(0)
      }),
    )
  })

  it('skips retries of what cannot succeed, with the reason', () => {
    expect(decideOn({}, 1, new PermanentError('x'))).toMatchObject({ reason: 'permanent' })
    expect(decideOn({}, 1, new DecodeError('x'))).toMatchObject({ reason: 'undecodable' })
    expect(decideOn({}, 1, new ValidationError('x', []))).toMatchObject({ reason: 'invalid' })
    const retryable = (error: unknown) => !(error instanceof TypeError)
    expect(decideOn({ retryable }, 1, new TypeError('x'))).toMatchObject({ reason: 'permanent' })
    expect(decideOn({ retryable }, 1, new PermanentError('x')).retryInMs).toBe(1000)
  })

  it('takes the delay of a RetryLaterError, which counts unless it says not', () => {
    expect(decideOn({}, 1, new RetryLaterError('1h')).retryInMs).toBe(3_600_000)
    expect(decideOn({}, 5, new RetryLaterError('1h'))).toMatchObject({ reason: 'exhausted' })
    const uncounted = new RetryLaterError('1h', 'x', { counted: false })
    expect(decideOn({}, 5_000_000, uncounted).retryInMs).toBe(3_600_000)
    expect(() => new RetryLaterError('soon' as never)).toThrow(/RetryLaterError delay is "soon"/)
  })
})

describe('describeFailure', () => {
  const about = { attempts: 1, topic: 't', group: 'g', firstFailedAt: 0, lastFailedAt: 0 }

  it('cuts long messages and stacks', () => {
    const error = new Error('m'.repeat(5000))
    const failure = describeFailure(error, 'exhausted', about, 100)
    expect(failure.errorMessage).toHaveLength(2000)
    expect(failure.errorStack).toHaveLength(100)
    expect(describeFailure(error, 'exhausted', about, 0).errorStack).toBe('')
  })

  it('copes with errors that have no stack, or a strange one', () => {
    const error = new Error('x')
    Object.assign(error, { stack: undefined, name: 5 })
    expect(describeFailure(error, 'exhausted', about, 100)).toMatchObject({
      errorStack: '',
      errorName: '5',
    })
  })
})

describe('retries', () => {
  for (const attempts of [1, 2, 5, 17]) {
    it(`makes exactly ${attempts} attempts, with the backoff between them`, async () => {
      await using bus = await createTestBus()
      const times: number[] = []
      const seen: unknown[] = []
      const retry = { attempts, base: '1s', max: '1m' } as const
      await bus.subscribe('orders', { group: 'g', retry }, (payload, { attempt, message }) => {
        times.push(bus.clock.now())
        seen.push([payload, attempt, message.id, message.headers])
        throw new Error('no')
      })
      const { id } = await bus.publish('orders', 'x', { headers: { a: 'b' } })
      const [event] = await bus.deadLettered()
      await bus.advance(86_400_000)
      expect(event).toMatchObject({ attempt: attempts, reason: 'exhausted' })
      expect(seen).toEqual(Array.from({ length: attempts }, (_, i) => ['x', i + 1, id, { a: 'b' }]))
      expect(times.slice(1).map((time, i) => time - times[i]!)).toEqual(
        Array.from({ length: attempts - 1 }, (_, i) => Math.min(60_000, 1000 * 2 ** i)),
      )
    })
  }

  it('is never early and consumes other messages meanwhile', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    await bus.subscribe('orders', { group: 'g', retry: { base: '1m' } }, (n, { attempt }) => {
      seen.push(n)
      if (n === 0 && attempt === 1) throw new Error('no')
    })
    for (let n = 0; n < 50; n++) await bus.publish('orders', n)
    await bus.handled({ count: 49, within: 0 })
    await bus.advance(59_999)
    expect(seen).toHaveLength(50)
    await bus.advance(1)
    expect(seen).toHaveLength(51)
  })

  it('does not let waiting retries use up the window', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g', concurrency: 1, retry: { base: '1h' } }, (n) => {
      if (n !== 'good') throw new Error('no')
    })
    for (let n = 0; n < 20; n++) await bus.publish('orders', n)
    await bus.publish('orders', 'good')
    await bus.handled({ within: 0 })
  })

  it('retries at once, in the process, as often as immediate says, within each attempt', async () => {
    await using bus = await createTestBus()
    const seen: number[] = []
    const retry = { attempts: 2, immediate: 2 }
    await bus.subscribe('orders', { group: 'g', retry }, (_, { attempt }) => {
      seen.push(attempt)
      throw new Error('no')
    })
    await bus.publish('orders', 1)
    await bus.advance(0)
    expect(seen).toEqual([1, 1, 1])
    await bus.deadLettered()
    expect(seen).toEqual([1, 1, 1, 2, 2, 2])
    expect(await bus.failed({ count: 2 })).toHaveLength(2)
  })

  it('does not repeat at once what cannot succeed, or asks for later', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    const retry = { attempts: 3, immediate: 5 }
    await bus.subscribe('orders', { group: 'g', retry }, (payload, { attempt }) => {
      seen.push(payload)
      if (payload === 'permanent') throw new PermanentError('no')
      if (attempt === 1) throw new RetryLaterError('1m')
    })
    await bus.publish('orders', 'permanent')
    await bus.publish('orders', 'later')
    await bus.deadLettered()
    await bus.handled()
    expect(seen).toEqual(['permanent', 'later', 'later'])
  })

  it('gives an immediate repeat the payload as it came, whatever the attempt before did to it', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    await bus.subscribe<{ n: number }>(
      'orders',
      { group: 'g', retry: { immediate: 1 } },
      (order, { message }) => {
        seen.push(order.n, (message.payload as { n: number }).n)
        order.n = 99
        if (seen.length === 2) throw new Error('no')
      },
    )
    await bus.publish('orders', { n: 1 })
    await bus.handled()
    expect(seen).toEqual([1, 1, 1, 1])
  })

  it('never uses up attempts with uncounted RetryLaterErrors', async () => {
    await using bus = await createTestBus()
    let runs = 0
    await bus.subscribe('orders', { group: 'g', retry: { attempts: 2 } }, (_, { attempt }) => {
      expect(attempt).toBe(1)
      if (++runs < 50) throw new RetryLaterError('1m', 'busy', { counted: false })
    })
    await bus.publish('orders', 1)
    await bus.handled()
    expect(runs).toBe(50)
  })

  it('dead-letters at once after PermanentError, with name, message, stack and times', async () => {
    await using bus = await createTestBus()
    class CardError extends PermanentError {}
    await bus.subscribe('orders', { group: 'g' }, (_, { attempt }) => {
      if (attempt === 1) throw new Error('first')
      throw new CardError('card refused')
    })
    const { id } = await bus.publish('orders', { n: 1 }, { headers: { h: '1' }, key: 'k' })
    const firstFailedAt = bus.clock.now()
    await bus.deadLettered({ id })
    const letter = (await bus.deadLetters('orders', 'g').get(id))!
    expect(letter).toMatchObject({ id, key: 'k', headers: { h: '1' } })
    expect(letter.failure).toEqual({
      reason: 'permanent',
      errorName: 'CardError',
      errorMessage: 'card refused',
      errorStack: expect.stringMatching(/card refused[\s\S]*failure\.test\.ts/),
      attempts: 2,
      topic: 'orders',
      group: 'g',
      firstFailedAt,
      lastFailedAt: firstFailedAt + 1000,
    })
  })

  it('drops failed messages when the policy keeps none: an event and a warning for each', async () => {
    const warnings: unknown[] = []
    const logger = {
      debug: () => {},
      info: () => {},
      warn: (text: string) => warnings.push(text),
      error: () => {},
    }
    await using bus = await createTestBus({ logger })
    const discarded: unknown[] = []
    bus.on('discarded', ({ reason, message }) => discarded.push([reason, message.id]))
    const options = { group: 'g', deadLetter: { keep: false }, retry: { attempts: 2 } }
    await bus.subscribe('orders', options, () => {
      throw new Error('no')
    })
    const { id } = await bus.publish('orders', 1)
    await bus.failed({ count: 2 })
    await bus.advance(0)
    expect(discarded).toEqual([['exhausted', id]])
    expect(warnings).toEqual([expect.stringContaining(`${id} of 'orders' was discarded`)])
    expect(await bus.admin.stats('orders', 'g')).toEqual({
      ready: 0,
      delayed: 0,
      inFlight: 0,
      dead: 0,
    })
  })

  it('does not hang on a message when the retryable function of the user throws', async () => {
    await using bus = await createTestBus()
    let runs = 0
    const retryable = () => {
      throw new Error('a bug in retryable')
    }
    await bus.subscribe('orders', { group: 'g', retry: { retryable } }, () => {
      runs++
      throw new Error('no')
    })
    await bus.publish('orders', 1)
    await bus.deadLettered({ within: 60_000 })
    expect(runs).toBeLessThanOrEqual(5)
  })
})
