import { describe, expect, it } from 'vitest'
import type { ConsumeMiddleware } from './api.js'
import type { Codec } from './codecs/codec.js'
import { connect } from './connect.js'
import type { DriverModule } from './driver.js'
import { PermanentError } from './errors.js'
import type { Logger } from './logger.js'
import { memory } from './memory/index.js'
import { deduplicate } from './middleware/deduplicate.js'
import { registerDriver } from './registry.js'
import { createTestBus, VirtualClock } from './testing/index.js'
import { topic } from './topic.js'

/** What users, loggers, codecs and drivers may do wrong, and what must go on all the same. */

describe('a filter of dead letters', () => {
  it('is refused when a condition is undefined: it would mean any', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g', retry: { attempts: 1 } }, () => {
      throw new Error('no')
    })
    await bus.publish('orders', 1)
    await bus.deadLettered()
    const letters = bus.deadLetters('orders', 'g')
    const nothing = { id: undefined } as never
    for (const call of [
      () => letters.discard(nothing),
      () => letters.redrive(nothing),
      () => letters.count(nothing),
      () => letters.discard({ signal: new AbortController().signal }),
    ]) {
      await expect(call()).rejects.toMatchObject({ code: 'LONGSHORE_OPTION' })
    }
    expect(await letters.count()).toBe(1)
  })
})

describe('closing in a handler', () => {
  it('closes another subscription, which may run something at that moment', async () => {
    await using bus = await createTestBus()
    let release: () => void = () => {}
    const other = await bus.subscribe('slow', { group: 'g' }, async () => {
      await new Promise<void>((resolve) => {
        release = resolve
      })
    })
    await bus.publish('slow', 1)
    await bus.advance(0)
    expect(other.running).toBe(1)
    await bus.subscribe('orders', { group: 'g', retry: { attempts: 1 } }, async () => {
      const closing = other.close()
      release()
      await closing
    })
    await bus.publish('orders', 1)
    await bus.handled({ topic: 'orders' })
    expect(other.state).toBe('closed')
  })
})

describe('a handler that returns a thing whose then throws', () => {
  it('has failed, and the next message flows', async () => {
    await using bus = await createTestBus()
    const trap = new Proxy(
      {},
      {
        get: () => {
          throw new Error('hands off')
        },
      },
    )
    await bus.subscribe('orders', { group: 'g', retry: { attempts: 1 } }, (n) =>
      n === 1 ? trap : undefined,
    )
    await bus.publish('orders', 1)
    await bus.publish('orders', 2)
    await bus.deadLettered()
    await bus.handled()
  })
})

describe('a logger that throws', () => {
  it('breaks nothing', async () => {
    const broken = () => {
      throw new Error('disk full')
    }
    const logger: Logger = { debug: broken, info: broken, warn: broken, error: broken }
    await using bus = await createTestBus({ logger })
    const { broker } = bus.native()
    let failures = 2
    broker.faults = { settle: () => (failures-- > 0 ? 'fail' : undefined) }
    await bus.subscribe('orders', { group: 'g' }, () => {})
    await bus.publish('orders', 1)
    await bus.handled()
    expect(failures).toBeLessThan(0)
  })
})

describe('a codec of the user', () => {
  it('is refused if it does not encode to bytes, and the buffer keeps its count', async () => {
    await using bus = await createTestBus()
    const wrong = { contentType: 'x/y', encode: () => 'text', decode: () => 1 } as unknown as Codec
    const Wrong = topic('wrong', { codec: wrong })
    await expect(bus.publish(Wrong, 1)).rejects.toMatchObject({ code: 'LONGSHORE_ENCODE' })
    expect(bus.health().outgoing).toMatchObject({ messages: 0, bytes: 0 })
    expect(() => topic('t', { codec: { encode: () => {} } as never })).toThrow(/codec is an object/)
  })
})

describe('a store of deduplicate that fails to give a claim up', () => {
  it("doesn't hide the handler's error", async () => {
    await using bus = await createTestBus()
    const store = {
      claim: async () => 'claimed' as const,
      done: async () => {},
      release: async () => {
        throw new Error('store is down')
      },
    }
    const middleware = [deduplicate({ store })]
    await bus.subscribe('orders', { group: 'g', middleware }, () => {
      throw new PermanentError('never')
    })
    await bus.publish('orders', 1)
    const [event] = await bus.deadLettered()
    expect(event).toMatchObject({ reason: 'permanent', attempt: 1 })
  })
})

describe('a driver', () => {
  const named = (name: string, changes: Partial<DriverModule>): DriverModule =>
    ({ ...memory, name, schemes: [name], ...changes }) as DriverModule

  it('that never connects is given up after connectTimeout', async () => {
    const clock = new VirtualClock()
    const driver = named('never', { connect: () => new Promise(() => {}) })
    const connecting = connect({ driver, clock, connectTimeout: '5s' }).catch((error) => error)
    await clock.advance(6000)
    expect(await connecting).toMatchObject({ code: 'LONGSHORE_CONNECTION' })
  })

  it('that never disconnects does not hang close', async () => {
    const driver = named('sticky', {
      connect: async (config) => {
        const inner = await memory.connect(config as never)
        return Object.assign(Object.create(inner), { close: () => new Promise(() => {}) })
      },
    })
    const bus = await connect({ driver })
    expect(await bus.close({ timeout: 50 })).toEqual({ drained: true, abandoned: 0 })
  })

  it('can be registered by name and scheme', async () => {
    const driver = named('acme', {})
    registerDriver(driver)
    registerDriver(driver)
    await (await connect('acme://x')).close()
    await (await connect({ driver: 'acme' as never })).close()
    expect(() => registerDriver(named('acme', {}))).toThrow(/a driver 'acme' already/)
    expect(() => registerDriver(named('other', { schemes: ['amqp'] }))).toThrow(/'amqp:' is taken/)
  })
})

describe('connect', () => {
  it('never shows a password', async () => {
    for (const url of ['amqp//joe:secret@host', 'memory://joe:secret@[']) {
      const error = await connect(url).catch((thrown: unknown) => thrown)
      expect(String(error)).toMatch(/\*\*\*@/)
      expect(String(error)).not.toMatch(/secret/)
    }
  })

  it('refuses options beside a config, and other settings for a broker that exists', async () => {
    const both = connect as (config: object, options: object) => Promise<unknown>
    await expect(both({ driver: 'memory' }, { autoCreate: false })).rejects.toThrow(
      /everything in one object/,
    )
    const bus = await connect('memory://robust?retain=5')
    await expect(connect('memory://robust?retain=6')).rejects.toMatchObject({
      code: 'LONGSHORE_CONFLICT',
    })
    await (await connect('memory://robust')).close()
    await bus.close()
  })
})

describe('after close', () => {
  it('admin, dead letters and circuits raise a typed error', async () => {
    const bus = await createTestBus()
    const { admin } = bus
    const letters = bus.deadLetters('orders', 'g')
    const circuits = bus.circuits('orders', 'g')
    await bus.close()
    for (const call of [
      () => admin.createTopic('orders'),
      () => admin.stats('orders', 'g'),
      () => letters.redrive(),
      () => letters.count(),
      () => circuits.list(),
      () => circuits.close('k'),
    ]) {
      await expect(call()).rejects.toMatchObject({ code: 'LONGSHORE_CLOSED' })
    }
  })
})

describe('signals', () => {
  it('may be shared by any number of publishes and subscriptions without a warning', async () => {
    const warnings: string[] = []
    const listen = (warning: Error) => void warnings.push(warning.name)
    process.on('warning', listen)
    await using bus = await createTestBus()
    const { signal } = new AbortController()
    for (let n = 0; n < 20; n++) await bus.subscribe('orders', { group: `g${n}`, signal }, () => {})
    const entries = Array.from({ length: 50 }, (_, payload) => ({ payload }))
    await bus.publishBatch('orders', entries, { signal })
    await bus.handled({ count: 1000 })
    await new Promise((resolve) => setImmediate(resolve))
    process.off('warning', listen)
    expect(warnings).toEqual([])
  })
})

describe('a middleware that forgets to await next', () => {
  it('changes nothing: the message is acked after its handler, and retried when it fails', async () => {
    await using bus = await createTestBus()
    let release: () => void = () => {}
    const forgets: ConsumeMiddleware = (context, next) => {
      next(context)
    }
    await bus.subscribe('orders', { group: 'g', middleware: [forgets] }, async (_, { attempt }) => {
      await new Promise<void>((resolve) => {
        release = resolve
      })
      if (attempt === 1) throw new Error('no')
    })
    await bus.publish('orders', 1)
    await bus.advance(0)
    expect(await bus.admin.stats('orders', 'g')).toMatchObject({ inFlight: 1 })
    release()
    await bus.retried()
    await bus.advance(1000)
    release()
    expect(await bus.handled()).toMatchObject([{ attempt: 2 }])
  })
})

describe('what is no topic', () => {
  it('is refused by every call', async () => {
    await using bus = await createTestBus()
    for (const wrong of [undefined, null, 5, {}, { name: 'orders' }] as never[]) {
      const calls = [
        () => bus.publish(wrong, 1),
        () => bus.publishBatch(wrong, [{ payload: 1 }]),
        () => bus.subscribe(wrong, { group: 'g' }, () => {}),
      ]
      for (const call of calls) {
        await expect(call()).rejects.toMatchObject({ code: 'LONGSHORE_OPTION' })
      }
    }
    expect(() => bus.deadLetters({ name: 'a b' }, 'g')).toThrow(/no valid topic name/)
  })
})

describe('options without meaning', () => {
  it('are refused when declared', async () => {
    await using bus = await createTestBus()
    const store = { list: async () => [] }
    for (const options of [
      { deadLetter: { keep: 'no' } },
      { timeout: 0 },
      { circuits: store },
      { order: 'key', onKeyFailure: 'park', circuits: store },
    ]) {
      const subscribing = bus.subscribe('orders', { group: 'g', ...options } as never, () => {})
      await expect(subscribing).rejects.toMatchObject({ code: 'LONGSHORE_OPTION' })
    }
    for (const options of [
      { autoCreate: 'no' },
      { logger: {} },
      { clock: {} },
      { consume: null },
    ]) {
      const connecting = connect('memory://', options as never)
      await expect(connecting).rejects.toMatchObject({ code: 'LONGSHORE_OPTION' })
    }
  })
})

describe('a publish middleware that does not await next', () => {
  it('is told apart from one that never calls it', async () => {
    await using bus = await createTestBus({
      publish: {
        middleware: [
          (context, next) => {
            if (context.payload === 1) next(context)
          },
        ],
      },
    })
    await expect(bus.publish('orders', 1)).rejects.toThrow(/returned before next\(\) had ended/)
    await expect(bus.publish('orders', 2)).rejects.toThrow(/did not call next\(\)/)
  })
})

describe('subscribing to a driver that hangs', () => {
  it('ends when its signal aborts, and leaves what comes too late', async () => {
    let joined: (() => void) | undefined
    let left = 0
    const driver: DriverModule = {
      ...memory,
      async connect(config) {
        const inner = await memory.connect(config as never)
        return Object.assign(Object.create(inner), {
          subscribe: () =>
            new Promise((resolve) => {
              joined = () => resolve({ close: async () => void left++ })
            }),
        })
      },
    }
    const bus = await connect({ driver })
    const controller = new AbortController()
    const { signal } = controller
    const subscribing = bus.subscribe('orders', { group: 'g', signal }, () => {})
    await new Promise((resolve) => setImmediate(resolve))
    controller.abort()
    await expect(subscribing).rejects.toMatchObject({ code: 'LONGSHORE_CLOSED' })
    joined?.()
    await new Promise((resolve) => setImmediate(resolve))
    expect(left).toBe(1)
    await bus.close()
  })
})

describe('a handler that fails inside of a middleware that awaits something else', () => {
  it('does not end the process', async () => {
    const crashes: unknown[] = []
    const listen = (error: unknown) => void crashes.push(error)
    process.on('unhandledRejection', listen)
    await using bus = await createTestBus()
    const forgets: ConsumeMiddleware = async (context, next) => {
      next(context)
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
    await bus.subscribe('orders', { group: 'g', middleware: [forgets] }, async () => {
      await undefined
      throw new Error('no')
    })
    await bus.publish('orders', 1)
    await bus.handled()
    await new Promise((resolve) => setImmediate(resolve))
    process.off('unhandledRejection', listen)
    expect(crashes).toEqual([])
  })
})
