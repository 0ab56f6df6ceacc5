import { describe, expect, it } from 'vitest'
import type { ConsumeMiddleware } from '../api.js'
import { createTestBus } from '../testing/index.js'
import { type ChainContext, compose } from './compose.js'

interface Trace extends ChainContext {
  readonly log: string[]
}

describe('compose', () => {
  const mark =
    (name: string) => (context: Trace, next: (context: Trace) => void | Promise<void>) => {
      context.log.push(`${name} in`)
      const result = next(context)
      context.log.push(`${name} out`)
      return result
    }

  it('runs the first outermost, and stays synchronous where all are', () => {
    const chain = compose<Trace>([mark('a'), mark('b')], (context) => {
      context.log.push('core')
    })
    const context: Trace = { cursor: 0, log: [] }
    expect(chain(context)).toBeUndefined()
    expect(context.log).toEqual(['a in', 'b in', 'core', 'b out', 'a out'])
  })

  it('is the innermost itself without middleware', () => {
    const core = () => {}
    expect(compose([], core)).toBe(core)
  })

  it('finds a second next wherever it comes from, also after the first has ended', async () => {
    let kept: (() => void | Promise<void>) | undefined
    const chain = compose<Trace>(
      [
        function greedy(context, next) {
          kept = () => next(context)
          return next(context)
        },
        mark('inner'),
      ],
      () => {},
    )
    chain({ cursor: 0, log: [] })
    expect(() => kept?.()).toThrow(/middleware 'greedy' called next\(\) twice in one attempt/)
  })

  it('names a nameless middleware as such', () => {
    const chain = compose<Trace>([(_, next) => (next as unknown as () => void)()], () => {})
    expect(() => chain({ cursor: 0, log: [] })).toThrow(/^a middleware must pass on the context/)
  })

  it('runs the rest once more with again, its own nexts included', () => {
    const chain = compose<Trace>(
      [
        (context, next) => {
          next(context)
          return next.again(context)
        },
        mark('b'),
      ],
      (context) => {
        context.log.push('core')
      },
    )
    const context: Trace = { cursor: 0, log: [] }
    chain(context)
    expect(context.log).toEqual(['b in', 'core', 'b out', 'b in', 'core', 'b out'])
  })
})

describe('consume middleware', () => {
  const log: string[] = []
  const named =
    (name: string): ConsumeMiddleware =>
    async (context, next) => {
      log.push(`${name} in ${context.attempt}`)
      try {
        await next(context)
        log.push(`${name} out`)
      } catch (error) {
        log.push(`${name} saw ${(error as Error).message}`)
        throw error
      }
    }

  it("runs the bus's outside the subscription's, around every attempt", async () => {
    log.length = 0
    await using bus = await createTestBus({ consume: { middleware: [named('bus')] } })
    await bus.subscribe(
      'orders',
      { group: 'g', middleware: [named('outer'), named('inner')] },
      (_, { attempt }) => {
        log.push('handler')
        if (attempt === 1) throw new Error('no')
      },
    )
    await bus.publish('orders', 1)
    await bus.handled()
    expect(log).toEqual([
      'bus in 1',
      'outer in 1',
      'inner in 1',
      'handler',
      'inner saw no',
      'outer saw no',
      'bus saw no',
      'bus in 2',
      'outer in 2',
      'inner in 2',
      'handler',
      'inner out',
      'outer out',
      'bus out',
    ])
  })

  it('sees the decoded payload and the message, and can leave things for the handler', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    const leaving: ConsumeMiddleware = (context, next) => {
      context.state.set('who', `${context.topic}/${context.group}`)
      seen.push(context.payload, context.message.payload, context.message.id)
      return next(context)
    }
    await bus.subscribe('orders', { group: 'g', middleware: [leaving] }, (_, { state }) => {
      seen.push(state.get('who'))
    })
    await bus.publish('orders', { n: 1 }, { id: 'x' })
    await bus.handled()
    expect(seen).toEqual([{ n: 1 }, { n: 1 }, 'x', 'orders/g'])
  })

  const bad: { what: string; middleware: ConsumeMiddleware; says: RegExp }[] = [
    {
      what: 'next twice',
      middleware: async function twice(context, next) {
        await next(context)
        await next(context)
      },
      says: /middleware 'twice' called next\(\) twice in one attempt; call next\.again\(context\)/,
    },
    {
      what: 'next twice at once',
      middleware: async function both(context, next) {
        await Promise.all([next(context), next(context)])
      },
      says: /middleware 'both' called next\(\) twice/,
    },
    {
      what: 'next without the context',
      middleware: function nothing(_context, next) {
        return (next as unknown as () => void)()
      },
      says: /middleware 'nothing' must pass on the context that it got: next\(context\)/,
    },
  ]
  for (const { what, middleware, says } of bad) {
    it(`fails the attempt of a middleware that calls ${what}, with the cure`, async () => {
      await using bus = await createTestBus()
      const options = { group: 'g', retry: { attempts: 2 }, middleware: [middleware] }
      await bus.subscribe('orders', options, () => {})
      await bus.publish('orders', 1)
      const [event] = await bus.deadLettered()
      expect(event).toMatchObject({ attempt: 2, error: { code: 'LONGSHORE_MIDDLEWARE' } })
      expect(event!.error.message).toMatch(says)
    })
  }

  it('acks without running the handler when a middleware does not call next', async () => {
    await using bus = await createTestBus()
    let runs = 0
    const filter: ConsumeMiddleware = (context, next) =>
      context.payload === 'skip' ? undefined : next(context)
    await bus.subscribe('orders', { group: 'g', middleware: [filter] }, () => void runs++)
    await bus.publish('orders', 'skip')
    await bus.publish('orders', 'run')
    await bus.handled({ count: 2 })
    expect(runs).toBe(1)
  })

  it('repeats the handler in one attempt with next.again', async () => {
    await using bus = await createTestBus()
    const attempts: number[] = []
    const stubborn: ConsumeMiddleware = async (context, next) => {
      try {
        await next(context)
      } catch {
        await next.again(context)
      }
    }
    const options = { group: 'g', middleware: [stubborn] }
    await bus.subscribe('orders', options, (_, { attempt }) => {
      attempts.push(attempt)
      if (attempts.length === 1) throw new Error('no')
    })
    await bus.publish('orders', 1)
    await bus.handled()
    expect(attempts).toEqual([1, 1])
  })

  it('wraps each message of a batch', async () => {
    await using bus = await createTestBus()
    let calls = 0
    const counting: ConsumeMiddleware = (context, next) => {
      calls++
      return next(context)
    }
    const options = { group: 'g', batchSize: 3, middleware: [counting] }
    await bus.subscribeBatch('orders', options, () => {})
    for (let n = 0; n < 3; n++) await bus.publish('orders', n)
    await bus.handled({ count: 3 })
    expect(calls).toBe(3)
  })
})
