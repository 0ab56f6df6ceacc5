import { getEventListeners } from 'node:events'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import type { ConsumeMiddleware, Subscription } from '../api.js'
import { deadLetter, type Logger, PermanentError, retry } from '../index.js'
import { createTestBus } from '../testing/index.js'

function deferred<T = void>() {
  let resolve!: (value: T) => void
  const promise = new Promise<T>((done) => {
    resolve = done
  })
  return { promise, resolve }
}

describe('a handler that throws what is no Error', () => {
  const things: { what: string; thrown: unknown; says: RegExp }[] = [
    { what: 'undefined', thrown: undefined, says: /threw undefined undefined, which is no Error/ },
    { what: 'null', thrown: null, says: /threw object null/ },
    { what: 'a string', thrown: 'broken', says: /threw string "broken".*throw an Error to keep/ },
    { what: 'a number', thrown: 0, says: /threw number 0/ },
    { what: 'a plain object', thrown: { code: 1 }, says: /threw object \[object Object\]/ },
    { what: 'a long string', thrown: 'x'.repeat(500), says: /x{70}…/ },
    { what: 'a symbol', thrown: Symbol('s'), says: /threw symbol Symbol\(s\)/ },
    {
      what: 'an object whose toString throws',
      thrown: {
        toString() {
          throw new Error('no')
        },
      },
      says: /threw an unprintable object/,
    },
    { what: 'an object without a prototype', thrown: Object.create(null), says: /unprintable/ },
    { what: 'an error of another realm', thrown: runInNewContext("new Error('far')"), says: /far/ },
  ]
  for (const { what, thrown, says } of things) {
    for (const how of ['throws', 'rejects with'] as const) {
      it(`retries and dead-letters a handler that ${how} ${what}, as a NonError`, async () => {
        await using bus = await createTestBus()
        await bus.subscribe('orders', { group: 'g', retry: { attempts: 2 } }, () => {
          if (how === 'rejects with') return Promise.reject(thrown)
          throw thrown
        })
        const { id } = await bus.publish('orders', 1)
        const [event] = await bus.deadLettered({ id })
        expect(event).toMatchObject({
          attempt: 2,
          reason: 'exhausted',
          error: { name: 'NonError', code: 'LONGSHORE_NON_ERROR', thrown },
        })
        const { failure } = (await bus.deadLetters('orders', 'g').get(id))!
        expect(failure.errorName).toBe('NonError')
        expect(failure.errorMessage).toMatch(says)
      })
    }
  }

  it('dead-letters an error whose properties throw', async () => {
    class Evil extends Error {
      override get message(): string {
        throw new Error('no message')
      }
      override get stack(): string {
        throw new Error('no stack')
      }
    }
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g', retry: { attempts: 1 } }, () => {
      throw new Evil()
    })
    await bus.publish('orders', 1)
    await bus.deadLettered({ within: 1000 })
  })
})

describe('close in a handler', () => {
  type Closer = (bus: { close(): Promise<unknown> }, subscription: Subscription) => Promise<unknown>
  const ways: { what: string; close: Closer }[] = [
    { what: 'bus.close()', close: (bus) => bus.close() },
    {
      what: 'bus.close() after an await',
      close: async (bus) => {
        await null
        return bus.close()
      },
    },
    {
      what: 'bus.close() after real I/O',
      close: async (bus) => {
        await new Promise((resolve) => setImmediate(resolve))
        await bus.close()
      },
    },
    { what: 'subscription.close()', close: (_, subscription) => subscription.close() },
    {
      what: 'subscription.close() with a timeout',
      close: (_, subscription) => subscription.close({ timeout: '1s' }),
    },
    {
      what: 'disposing the subscription',
      close: (_, subscription) => subscription[Symbol.asyncDispose]() as Promise<unknown>,
    },
    {
      what: 'closing within an awaited helper',
      close: async (bus) => {
        const helper = async () => {
          await null
          return bus.close()
        }
        await helper()
      },
    },
  ]
  const pass: ConsumeMiddleware = (context, next) => next(context)
  const awaiting: ConsumeMiddleware = async (context, next) => {
    await next(context)
  }
  for (const { what, close } of ways) {
    for (const [how, options] of [
      ['plain', {}],
      ['through middleware', { middleware: [pass, awaiting] }],
      ['with a timeout', { timeout: '1h' }],
      ['with immediate retries', { retry: { immediate: 1 } }],
      ['in order', { order: 'key' }],
    ] as const) {
      it(`refuses ${what} with a CloseInHandlerError that says how (${how})`, async () => {
        await using bus = await createTestBus()
        const error = deferred<unknown>()
        const subscription: Subscription = await bus.subscribe(
          'orders',
          { group: 'g', ...options },
          async () => {
            try {
              await close(bus, subscription)
              error.resolve('it closed')
            } catch (thrown) {
              error.resolve(thrown)
            }
          },
        )
        await bus.publish('orders', 1, { key: 'k' })
        await bus.handled()
        expect(await error.promise).toMatchObject({
          name: 'CloseInHandlerError',
          code: 'LONGSHORE_CLOSE_IN_HANDLER',
          message: expect.stringMatching(
            /would wait for that handler; .*setImmediate\(\(\) => bus\.close\(\)\)/,
          ),
        })
        // And the bus is as usable as before.
        await bus.publish('orders', 2)
        await bus.handled({ count: 2 })
      })
    }
  }

  it('refuses it in a middleware and in a batch handler too', async () => {
    await using bus = await createTestBus()
    const errors: unknown[] = []
    const note = async (step: Promise<unknown>) => {
      errors.push(await step.then(() => 'closed').catch((error) => error.code))
    }
    const closing: ConsumeMiddleware = async (context, next) => {
      await next(context)
      await note(bus.close())
    }
    await bus.subscribe('orders', { group: 'g', middleware: [closing] }, () => {})
    await bus.subscribeBatch('orders', { group: 'b', batchSize: 1 }, () => note(bus.close()))
    await bus.publish('orders', 1)
    await bus.handled({ count: 2 })
    expect(errors).toEqual(Array(2).fill('LONGSHORE_CLOSE_IN_HANDLER'))
  })

  it('allows setImmediate(() => bus.close()), which lets the handler finish', async () => {
    await using bus = await createTestBus()
    const closed = deferred<unknown>()
    await bus.subscribe('orders', { group: 'g' }, () => {
      setImmediate(() => closed.resolve(bus.close()))
    })
    await bus.publish('orders', 1)
    expect(await closed.promise).toEqual({ drained: true, abandoned: 0 })
  })

  it("allows closing another bus's subscription", async () => {
    await using bus = await createTestBus()
    await using other = await createTestBus()
    const subscription = await other.subscribe('orders', { group: 'g' }, () => {})
    let report: unknown
    await bus.subscribe('orders', { group: 'g' }, async () => {
      report = await subscription.close()
    })
    await bus.publish('orders', 1)
    await bus.handled()
    expect(report).toEqual({ drained: true, abandoned: 0 })
  })
})

describe('pause and resume', () => {
  it('stops handing out messages; they stay in the broker until resume', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    const subscription = await bus.subscribe('orders', { group: 'g' }, (n) => void seen.push(n))
    await bus.publish('orders', 0)
    await bus.handled()
    subscription.pause()
    expect(subscription.state).toBe('paused')
    expect(bus.health()).toMatchObject({ status: 'degraded', subscriptions: [{ state: 'paused' }] })
    for (let n = 1; n < 6; n++) await bus.publish('orders', n)
    await bus.advance(60_000)
    expect(seen).toEqual([0])
    expect(await bus.admin.stats('orders', 'g')).toMatchObject({ ready: 5, inFlight: 0 })
    subscription.resume()
    await bus.handled({ count: 6 })
    expect(seen).toEqual([0, 1, 2, 3, 4, 5])
    expect(bus.health().status).toBe('up')
  })

  it('hands back what was prefetched, and lets what runs finish', async () => {
    await using bus = await createTestBus()
    const go = deferred()
    const started = deferred()
    const returned: number[] = []
    bus.on('returned', ({ count }) => returned.push(count))
    const subscription = await bus.subscribe('orders', { group: 'g', prefetch: 5 }, async () => {
      started.resolve()
      await go.promise
    })
    for (let n = 0; n < 5; n++) await bus.publish('orders', n)
    await started.promise
    subscription.pause()
    await bus.advance(0)
    expect(returned).toEqual([4])
    expect(await bus.admin.stats('orders', 'g')).toMatchObject({ ready: 4, inFlight: 1 })
    go.resolve()
    await bus.handled({ count: 1 })
    subscription.resume()
    await bus.handled({ count: 5 })
  })

  it('does not burn time while a retry comes due under a pause', async () => {
    await using bus = await createTestBus()
    let timers = 0
    const setTimer = bus.clock.setTimer.bind(bus.clock)
    bus.clock.setTimer = (callback, ms) => {
      if (++timers > 1000) throw new Error('a thousand timers')
      return setTimer(callback, ms)
    }
    const options = { group: 'g', order: 'key' } as const
    const subscription = await bus.subscribe('orders', options, (_, { attempt }) => {
      if (attempt === 1) throw new Error('no')
    })
    await bus.publish('orders', 1, { key: 'k' })
    await bus.retried()
    subscription.pause()
    await bus.advance(10_000)
    subscription.resume()
    await bus.handled()
  })

  it('closes while paused, and does nothing once closed', async () => {
    await using bus = await createTestBus()
    const subscription = await bus.subscribe('orders', { group: 'g' }, () => {})
    subscription.pause()
    expect(await subscription.close()).toEqual({ drained: true, abandoned: 0 })
    subscription.resume()
    subscription.pause()
    expect(subscription.state).toBe('closed')
  })
})

describe('a subscription', () => {
  it('ends when its signal aborts; a successor gets the rest', async () => {
    await using bus = await createTestBus()
    const abort = new AbortController()
    const subscription = await bus.subscribe(
      'orders',
      { group: 'g', signal: abort.signal },
      () => {},
    )
    await bus.publish('orders', 1)
    await bus.handled()
    abort.abort()
    await subscription.done
    expect(subscription.state).toBe('closed')
    expect(bus.health().subscriptions).toEqual([])
    const { id } = await bus.publish('orders', 2)
    await bus.subscribe('orders', { group: 'g' }, () => {})
    await bus.handled({ id })
  })

  it('is refused when its signal was aborted before', async () => {
    await using bus = await createTestBus()
    const options = { group: 'g', signal: AbortSignal.abort() }
    await expect(bus.subscribe('orders', options, () => {})).rejects.toMatchObject({
      code: 'LONGSHORE_CLOSED',
    })
    expect(bus.health().subscriptions).toEqual([])
  })

  it('does not stay attached to a long-lived signal after it closed', async () => {
    await using bus = await createTestBus()
    const { signal } = new AbortController()
    const subscription = await bus.subscribe('orders', { group: 'g', signal }, () => {})
    await subscription.close()
    expect(getEventListeners(signal, 'abort')).toEqual([])
  })

  it('fails for good when its topic is deleted and may not be created anew', async () => {
    await using bus = await createTestBus({ autoCreate: false })
    await bus.admin.createTopic('orders')
    await bus.admin.createGroup('orders', 'g', { order: 'none', from: 'latest' })
    const subscription = await bus.subscribe('orders', { group: 'g' }, () => {})
    await bus.admin.deleteTopic('orders')
    await expect(subscription.done).rejects.toMatchObject({ code: 'LONGSHORE_NOT_FOUND' })
    expect(subscription.state).toBe('failed')
  })

  it('stays visible in health after it failed for good', async () => {
    await using bus = await createTestBus({ autoCreate: false })
    await bus.admin.createTopic('orders')
    await bus.admin.createGroup('orders', 'g', { order: 'none', from: 'latest' })
    const subscription = await bus.subscribe('orders', { group: 'g' }, () => {})
    await bus.admin.deleteTopic('orders')
    await subscription.done.catch(() => {})
    expect(bus.health()).toMatchObject({
      status: 'degraded',
      subscriptions: [{ topic: 'orders', state: 'failed' }],
    })
  })

  it('says in a typed error that there is no such group (autoCreate: false)', async () => {
    await using bus = await createTestBus({ autoCreate: false })
    await expect(bus.subscribe('orders', { group: 'g' }, () => {})).rejects.toMatchObject({
      code: 'LONGSHORE_NOT_FOUND',
      message: expect.stringMatching(/no topic 'orders' and autoCreate is off; create it with bus/),
    })
    await expect(bus.publish('orders', 1)).rejects.toMatchObject({ code: 'LONGSHORE_NOT_FOUND' })
    await bus.admin.createTopic('orders')
    await expect(bus.subscribe('orders', { group: 'g' }, () => {})).rejects.toMatchObject({
      code: 'LONGSHORE_NOT_FOUND',
    })
    expect(bus.health().subscriptions).toEqual([])
  })

  it('warns when a handler fails after it has settled', async () => {
    const warnings: string[] = []
    const silent = () => {}
    const logger: Logger = {
      debug: silent,
      info: silent,
      error: silent,
      warn: (message) => warnings.push(message),
    }
    await using bus = await createTestBus({ logger })
    await bus.subscribe('orders', { group: 'g' }, async (_, { ack }) => {
      void ack
      throw new Error('before')
    })
    await bus.subscribe('late', { group: 'g' }, async (_, context) => {
      await context.ack()
      throw new Error('after')
    })
    await bus.publish('late', 1)
    await bus.handled({ topic: 'late' })
    await bus.advance(0)
    expect(warnings).toEqual([expect.stringMatching(/failed after it had settled it/)])
  })

  it('gives each attempt a live signal, and its own state', async () => {
    await using bus = await createTestBus()
    const aborted: boolean[] = []
    const states: unknown[] = []
    await bus.subscribe('orders', { group: 'g' }, (_, context) => {
      aborted.push(context.signal.aborted)
      states.push(context.state.get('x'))
      context.state.set('x', 1)
      if (context.attempt < 3) throw new Error('no')
    })
    await bus.publish('orders', 1)
    await bus.handled()
    expect(aborted).toEqual([false, false, false])
    expect(states).toEqual([undefined, undefined, undefined])
  })
})

describe('park: half-open circuits', () => {
  const options = {
    group: 'g',
    order: 'key',
    onKeyFailure: 'park',
    park: { coolDown: '1m' },
    retry: { attempts: 1 },
  } as const

  it('lets one message try after the cool-down: success closes the circuit', async () => {
    await using bus = await createTestBus()
    const states: string[] = []
    bus.on('circuit', ({ state, key }) => states.push(`${key} ${state}`))
    let failing = true
    await bus.subscribe('orders', options, () => {
      if (failing) throw new Error('no')
    })
    await bus.publish('orders', 0, { key: 'k' })
    await bus.deadLettered()
    failing = false
    await bus.advance(59_999)
    await bus.publish('orders', 1, { key: 'k' })
    await bus.deadLettered({ count: 2, within: 0 })
    await bus.advance(1)
    await bus.publish('orders', 2, { key: 'k' })
    await bus.publish('orders', 3, { key: 'k' })
    await bus.handled({ count: 2, within: 0 })
    expect(states).toEqual(['k open', 'k half-open', 'k closed'])
    expect(await bus.circuits('orders', 'g').list()).toEqual([])
  })

  it('opens anew, with a new cool-down, when the one that tries fails', async () => {
    await using bus = await createTestBus()
    const seen: unknown[] = []
    await bus.subscribe('orders', { ...options, retry: { attempts: 3 } }, (n) => {
      seen.push(n)
      throw new PermanentError(`no ${n}`)
    })
    await bus.publish('orders', 0, { key: 'k' })
    await bus.deadLettered()
    await bus.advance(60_000)
    await bus.publish('orders', 1, { key: 'k' })
    await bus.publish('orders', 2, { key: 'k' })
    await bus.deadLettered({ count: 3, within: 0 })
    expect(seen).toEqual([0, 1])
    expect(await bus.circuits('orders', 'g').list()).toMatchObject([{ key: 'k', ageMs: 0 }])
    await bus.advance(59_999)
    await bus.publish('orders', 3, { key: 'k' })
    await bus.deadLettered({ count: 4, within: 0 })
    expect(seen).toEqual([0, 1])
  })

  const failures: { how: string; retry?: ConsumeMiddleware; deadLetter?: ConsumeMiddleware }[] = [
    { how: 'dead-lettered by its handler' },
    { how: 'retried by a middleware in place of the policy', retry: retry() },
    { how: 'dead-lettered by a middleware in place of the policy', deadLetter: deadLetter() },
  ]
  for (const { how, ...custom } of failures) {
    it(`does not close the circuit when the one that tries is ${how}`, async () => {
      await using bus = await createTestBus()
      await bus.subscribe('orders', { ...options, ...custom }, async (_, context) => {
        if (how === 'dead-lettered by its handler') await context.deadLetter(new Error('no'))
        else throw new Error('no')
      })
      await bus.native().broker.circuits.open('orders', 'g', 'k', 'an earlier failure')
      await bus.advance(60_000)
      await bus.publish('orders', 0, { key: 'k' })
      await bus.advance(0)
      expect(await bus.admin.stats('orders', 'g')).not.toMatchObject({ ready: 0, dead: 0 })
      expect(await bus.circuits('orders', 'g').list()).toMatchObject([{ key: 'k' }])
    })
  }

  it('does not close the circuit when the one that tries in a consume loop fails', async () => {
    await using bus = await createTestBus()
    const loop = (async () => {
      for await (const delivery of bus.consume('orders', options)) {
        await delivery.fail(new PermanentError('no'))
      }
    })()
    await bus.advance(0)
    await bus.native().broker.circuits.open('orders', 'g', 'k', 'an earlier failure')
    await bus.advance(60_000)
    await bus.publish('orders', 0, { key: 'k' })
    await bus.deadLettered({ within: 0 })
    await bus.advance(0)
    expect(await bus.circuits('orders', 'g').list()).toMatchObject([{ key: 'k' }])
    await bus.close()
    await loop
  })

  it('shares circuits among the members of a group, also with those that join later', async () => {
    const memory = { name: 'shared-circuits' }
    await using bus = await createTestBus({ memory })
    await using other = await createTestBus({ memory, clock: bus.clock })
    const seen: unknown[] = []
    await bus.subscribe('orders', options, (n) => {
      seen.push(n)
      throw new Error('no')
    })
    await bus.publish('orders', 0, { key: 'k' })
    await bus.deadLettered()
    await bus.close()
    await other.subscribe('orders', options, (n) => void seen.push(n))
    await other.publish('orders', 1, { key: 'k' })
    await other.publish('orders', 2, { key: 'free' })
    await other.deadLettered({ within: 0 })
    await other.handled({ within: 0 })
    expect(seen).toEqual([0, 2])
    expect(await other.circuits('orders', 'g').close('k')).toBe(true)
    expect(await other.circuits('orders', 'g').close('k')).toBe(false)
    await other.publish('orders', 3, { key: 'k' })
    await other.handled({ count: 2, within: 0 })
  })

  it('refuses unknown options of circuits.close', async () => {
    await using bus = await createTestBus()
    await expect(
      bus.circuits('orders', 'g').close('k', { redrve: true } as never),
    ).rejects.toMatchObject({
      code: 'LONGSHORE_UNKNOWN_OPTION',
      message: expect.stringMatching(/did you mean 'redrive'\?/),
    })
  })

  it('lets messages without a key pass, whatever is open', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', options, () => {})
    await bus.native().broker.circuits.open('orders', 'g', 'k', 'x')
    await bus.publish('orders', 1)
    await bus.handled({ within: 0 })
  })
})
