import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { BatchEntry, PublishOptions } from '../api.js'
import { LongshoreError } from '../errors.js'
import { binary, type PublishMiddleware, text, topic } from '../index.js'
import type { WireMessage } from '../message.js'
import { createTestBus, type TestBus } from '../testing/index.js'

/** What reaches the broker. */
function tap(bus: TestBus, name = 'orders'): WireMessage[] {
  const seen: WireMessage[] = []
  bus.native().broker.tap(name, (message) => seen.push(message))
  return seen
}

const cyclic: Record<string, unknown> = {}
cyclic.self = cyclic

const payloads: { what: string; payload: unknown; says: RegExp }[] = [
  { what: 'a cyclic object', payload: cyclic, says: /circular/ },
  { what: 'a BigInt', payload: { n: 1n }, says: /BigInt/ },
  { what: 'undefined', payload: undefined, says: /JSON has no form for undefined/ },
  { what: 'a function', payload: () => {}, says: /JSON has no form for function/ },
  { what: 'a symbol', payload: Symbol('x'), says: /JSON has no form for symbol/ },
  {
    what: 'a payload whose toJSON throws',
    payload: {
      toJSON() {
        throw new Error('secret')
      },
    },
    says: /secret/,
  },
]

const options: { what: string; given: object; code: string; cure: RegExp }[] = [
  {
    what: 'an unknown option',
    given: { dealy: 5 },
    code: 'LONGSHORE_UNKNOWN_OPTION',
    cure: /publish\('orders'\): there is no option 'dealy'; did you mean 'delay'\?/,
  },
  {
    what: 'a reserved header',
    given: { headers: { 'longshore-x': '1' } },
    code: 'LONGSHORE_HEADER',
    cure: /names that begin with 'longshore-' are reserved; use another/,
  },
  {
    what: 'a reserved header in capitals',
    given: { headers: { 'LongShore-X': '1' } },
    code: 'LONGSHORE_HEADER',
    cure: /reserved/,
  },
  {
    what: 'a header that is a number',
    given: { headers: { n: 1 } },
    code: 'LONGSHORE_HEADER',
    cure: /header 'n' is a number; header values are strings/,
  },
  {
    what: 'a header that is undefined',
    given: { headers: { n: undefined } },
    code: 'LONGSHORE_HEADER',
    cure: /header 'n' is a undefined; header values are strings/,
  },
  {
    what: 'a header without a name',
    given: { headers: { '': 'x' } },
    code: 'LONGSHORE_HEADER',
    cure: /takes header names of/,
  },
  {
    what: 'a header with a lone surrogate',
    given: { headers: { x: '\ud800' } },
    code: 'LONGSHORE_HEADER',
    cure: /takes header values of well-formed Unicode only/,
  },
  {
    what: 'an empty key',
    given: { key: '' },
    code: 'LONGSHORE_OPTION',
    cure: /the key is ""; it must be a string of 1 to 1,024 printable characters/,
  },
  {
    what: 'a key that is a number',
    given: { key: 7 },
    code: 'LONGSHORE_OPTION',
    cure: /the key is 7; it must be a string of 1 to 1,024 printable characters/,
  },
  {
    what: 'an empty id',
    given: { id: '' },
    code: 'LONGSHORE_OPTION',
    cure: /id is "x*…?"?; it must be 1 to 255 bytes of printable text/,
  },
  {
    what: 'an id that is too long',
    given: { id: 'x'.repeat(256) },
    code: 'LONGSHORE_OPTION',
    cure: /id is "x*…?"?; it must be 1 to 255 bytes of printable text/,
  },
  {
    what: 'a key with a line break',
    given: { key: 'a\nb' },
    code: 'LONGSHORE_OPTION',
    cure: /it must be a string of 1 to 1,024 printable characters/,
  },
  {
    what: 'an id of more bytes than an AMQP short string has',
    given: { id: 'ä'.repeat(128) },
    code: 'LONGSHORE_OPTION',
    cure: /it must be 1 to 255 bytes of printable text/,
  },
  {
    what: 'a correlation id with a line break',
    given: { correlationId: 'a\r\nb' },
    code: 'LONGSHORE_OPTION',
    cure: /correlationId is .*; it must be 1 to 255 bytes of printable text/,
  },
  {
    what: 'a causation id that is a number',
    given: { causationId: 5 },
    code: 'LONGSHORE_OPTION',
    cure: /causationId is 5; it must be 1 to 255 bytes/,
  },
  {
    what: 'both delay and at',
    given: { delay: 1, at: new Date() },
    code: 'LONGSHORE_OPTION',
    cure: /give either 'delay' or 'at', not both/,
  },
  {
    what: 'an invalid Date',
    given: { at: new Date('never') },
    code: 'LONGSHORE_OPTION',
    cure: /'at' must be a valid Date/,
  },
  {
    what: 'a date that is a string',
    given: { at: '2026-01-01' },
    code: 'LONGSHORE_OPTION',
    cure: /'at' must be a valid Date/,
  },
  {
    what: 'a negative delay',
    given: { delay: -1 },
    code: 'LONGSHORE_OPTION',
    cure: /delay is -1; give milliseconds/,
  },
  {
    what: 'a delay without a known unit',
    given: { delay: '3 weeks' },
    code: 'LONGSHORE_OPTION',
    cure: /delay is "3 weeks"; .*'7d'/,
  },
  {
    what: 'a deadline that is no duration',
    given: { deadline: Number.NaN },
    code: 'LONGSHORE_OPTION',
    cure: /deadline is null; give milliseconds|deadline is NaN; give milliseconds/,
  },
  {
    what: 'a ttl that is no duration',
    given: { ttl: 'long' },
    code: 'LONGSHORE_OPTION',
    cure: /ttl is "long"/,
  },
  {
    what: 'a priority above the highest',
    given: { priority: 10 },
    code: 'LONGSHORE_OPTION',
    cure: /priority is 10; memory has the levels 0 to 9/,
  },
  {
    what: 'a priority that is no whole number',
    given: { priority: 1.5 },
    code: 'LONGSHORE_OPTION',
    cure: /levels 0 to 9/,
  },
  {
    what: 'a route with a wildcard',
    given: { route: 'eu.*' },
    code: 'LONGSHORE_OPTION',
    cure: /route is "eu\.\*"; it is words of letters, digits, '_' and '-', joined by '\.'/,
  },
  { what: 'an empty route', given: { route: '' }, code: 'LONGSHORE_OPTION', cure: /route is ""/ },
]

describe('publish: bad input', () => {
  for (const { what, payload, says } of payloads) {
    it(`refuses ${what} as a payload with an EncodeError, and stays usable`, async () => {
      await using bus = await createTestBus()
      const seen = tap(bus)
      await expect(bus.publish('orders', payload)).rejects.toMatchObject({
        name: 'EncodeError',
        code: 'LONGSHORE_ENCODE',
        message: expect.stringMatching(
          new RegExp(`'orders': the application/json codec can't encode .*${says.source}`, 's'),
        ),
      })
      expect(seen).toEqual([])
      await bus.publish('orders', 'fine')
      expect(seen).toHaveLength(1)
    })
  }

  for (const { what, given, code, cure } of options) {
    it(`refuses ${what}, alone and in a batch, and sends nothing of it`, async () => {
      await using bus = await createTestBus()
      const seen = tap(bus)
      const error = await bus.publish('orders', 1, given as PublishOptions).catch((e) => e)
      expect(error).toBeInstanceOf(LongshoreError)
      expect(error).toMatchObject({ code, message: expect.stringMatching(cure) })
      expect(seen).toEqual([])
      if ('deadline' in given) return
      const entry = { payload: 1, ...given } as BatchEntry<number>
      const outcomes = await bus.publishBatch('orders', [{ payload: 0 }, entry, { payload: 2 }])
      expect(outcomes.map(({ status }) => status)).toEqual(['confirmed', 'failed', 'confirmed'])
      expect(outcomes[1]).toMatchObject({ error: { code } })
      expect(seen).toHaveLength(2)
    })
  }

  it('refuses a body over the maximum, takes one at the maximum, and stays usable', async () => {
    await using bus = await createTestBus({ memory: { maxBytes: 100 } })
    const blobs = topic('blobs', { codec: binary() })
    await expect(bus.publish(blobs, new Uint8Array(101))).rejects.toMatchObject({
      name: 'TooLargeError',
      code: 'LONGSHORE_TOO_LARGE',
      message: expect.stringMatching(
        /the body has 101 bytes, memory takes 100; send a reference to the data instead/,
      ),
    })
    await bus.publish(blobs, new Uint8Array(100))
  })

  it('refuses an invalid topic name', async () => {
    await using bus = await createTestBus()
    for (const name of ['', 'a b', 'a/b', '.a', 'a.', 'a..b', 'ä', 'x'.repeat(201)]) {
      await expect(bus.publish(name, 1)).rejects.toMatchObject({
        name: 'NameError',
        code: 'LONGSHORE_NAME',
        message: expect.stringMatching(/no valid topic name; use 1 to 100 letters/),
      })
    }
  })

  it('refuses a payload that is of the wrong type for its codec', async () => {
    await using bus = await createTestBus()
    await expect(bus.publish(topic('notes', { codec: text() }), 5 as never)).rejects.toMatchObject({
      code: 'LONGSHORE_ENCODE',
      message: expect.stringMatching(/a string is needed, not number/),
    })
    await expect(
      bus.publish(topic('blobs', { codec: binary() }), 'x' as never),
    ).rejects.toMatchObject({
      code: 'LONGSHORE_ENCODE',
      message: expect.stringMatching(/a Uint8Array is needed, not string/),
    })
  })

  it('refuses what the schema refuses, with where and why, and sends nothing', async () => {
    await using bus = await createTestBus()
    const seen = tap(bus)
    const orders = topic('orders', {
      schema: z.object({ items: z.array(z.object({ price: z.number() })) }),
    })
    const bad = { items: [{ price: 1 }, { price: 'two' }] } as never
    const error = await bus.publish(orders, bad).catch((thrown) => thrown)
    expect(error).toMatchObject({
      name: 'ValidationError',
      code: 'LONGSHORE_VALIDATION',
      message: expect.stringMatching(
        /publishing to 'orders': the schema refuses the payload: items\.1\.price: /,
      ),
      issues: [{ path: 'items.1.price', message: expect.any(String) }],
    })
    expect(seen).toEqual([])
  })

  it('names at most five of many issues in the message, and all in issues', async () => {
    await using bus = await createTestBus()
    const orders = topic('orders', { schema: z.array(z.number()) })
    const error = await bus.publish(orders, Array(8).fill('x') as never).catch((thrown) => thrown)
    expect(error.message).toMatch(/; and 3 more$/)
    expect(error.issues).toHaveLength(8)
  })

  it('treats a schema that throws or rejects as one that refuses', async () => {
    await using bus = await createTestBus()
    const seen = tap(bus)
    for (const validate of [
      () => {
        throw new Error('boom')
      },
      () => Promise.reject(new Error('boom')),
    ]) {
      const orders = topic('orders', {
        schema: { '~standard': { version: 1, vendor: 'test', validate } },
      })
      await expect(bus.publish(orders, 1)).rejects.toMatchObject({
        code: 'LONGSHORE_VALIDATION',
        message: expect.stringMatching(/the schema itself threw: boom/),
        cause: { message: 'boom' },
      })
    }
    expect(seen).toEqual([])
  })

  it('refuses a key function that throws or gives no proper key, but lets it give none', async () => {
    await using bus = await createTestBus()
    const seen = tap(bus)
    const key = (value: unknown) => {
      if (value === 'throw') throw new Error('no customer')
      return value as string
    }
    const orders = topic<unknown>('orders', { key })
    await expect(bus.publish(orders, 'throw')).rejects.toMatchObject({
      code: 'LONGSHORE_OPTION',
      message: expect.stringMatching(/the topic's key function threw: no customer/),
    })
    await expect(bus.publish(orders, '')).rejects.toMatchObject({ code: 'LONGSHORE_OPTION' })
    await expect(bus.publish(orders, 7)).rejects.toMatchObject({ code: 'LONGSHORE_OPTION' })
    await bus.publish(topic('orders', { key: () => undefined }), 'none')
    await bus.publish(orders, 'k')
    await bus.publish(orders, 'k', { key: 'given' })
    expect(seen.map((message) => message.key)).toEqual([undefined, 'k', 'given'])
  })

  it('says of an invalid payload that it is invalid, not that its key function threw', async () => {
    const schema = z.object({ customer: z.object({ id: z.string() }) })
    const orders = topic('orders', { schema, key: (order) => order.customer.id })
    const pass: PublishMiddleware = (context, next) => next(context)
    for (const middleware of [[], [pass]]) {
      await using bus = await createTestBus({ publish: { middleware } })
      await expect(bus.publish(orders, {} as never)).rejects.toMatchObject({
        code: 'LONGSHORE_VALIDATION',
      })
    }
  })

  it('refuses null in place of options with a typed error', async () => {
    await using bus = await createTestBus()
    const error = await bus.publish('orders', 1, null as never).catch((thrown) => thrown)
    expect(error).toBeInstanceOf(LongshoreError)
  })

  it('refuses a batch that is no array, or has unknown options, as a whole', async () => {
    await using bus = await createTestBus()
    await expect(bus.publishBatch('orders', 'x' as never)).rejects.toMatchObject({
      code: 'LONGSHORE_OPTION',
      message: expect.stringMatching(/takes an array of \{ payload, … \}/),
    })
    await expect(bus.publishBatch('orders', [], { delay: 5 } as never)).rejects.toMatchObject({
      code: 'LONGSHORE_UNKNOWN_OPTION',
      message: expect.stringMatching(/publishBatch\('orders'\): there is no option 'delay'/),
    })
  })

  it('refuses single members that are no objects, or misspelt, and sends the others', async () => {
    await using bus = await createTestBus()
    const seen = tap(bus)
    const entries = [{ payload: 1 }, null, 5, { paylaod: 2 }, { payload: 3 }]
    const outcomes = await bus.publishBatch('orders', entries as never)
    expect(outcomes.map(({ status }) => status)).toEqual([
      'confirmed',
      'failed',
      'failed',
      'failed',
      'confirmed',
    ])
    expect(outcomes[3]).toMatchObject({
      error: {
        code: 'LONGSHORE_UNKNOWN_OPTION',
        message: expect.stringMatching(/did you mean 'payload'\?/),
      },
    })
    expect(seen).toHaveLength(2)
  })
})

describe('publish', () => {
  it('gives a new id to each message, in order of time', async () => {
    await using bus = await createTestBus()
    const ids = []
    for (let n = 0; n < 10; n++) ids.push((await bus.publish('orders', n)).id)
    expect(new Set(ids).size).toBe(10)
    expect([...ids].sort()).toEqual(ids)
  })

  it('is not affected by what happens to the object afterwards', async () => {
    await using bus = await createTestBus()
    const got: unknown[] = []
    await bus.subscribe('orders', { group: 'g' }, (payload) => void got.push(payload))
    await bus.subscribe(topic('blobs', { codec: binary() }), { group: 'g' }, (payload) => {
      got.push([...payload])
    })
    const order = { n: 1 }
    const headers = { a: '1' }
    const blob = new Uint8Array([1, 2, 3])
    const publishing = Promise.all([
      bus.publish('orders', order, { headers }),
      bus.publish(topic('blobs', { codec: binary() }), blob),
    ])
    order.n = 2
    headers.a = '2'
    blob[0] = 9
    await publishing
    const events = await bus.handled({ count: 2 })
    expect(got).toEqual([{ n: 1 }, [1, 2, 3]])
    expect(events[0]!.message.headers).toEqual({ a: '1' })
  })

  it('validates what is given and sends it as it was, so that transforms run once, at the consumer', async () => {
    await using bus = await createTestBus()
    const seen = tap(bus, 'dates')
    const dates = topic('dates', { schema: z.string().transform((at) => new Date(at)) })
    const got: Date[] = []
    await bus.subscribe(dates, { group: 'g' }, (date) => void got.push(date))
    await bus.publish(dates, '2026-01-01T00:00:00.000Z')
    await bus.handled()
    expect(Buffer.from(seen[0]!.body).toString()).toBe('"2026-01-01T00:00:00.000Z"')
    expect(got).toEqual([new Date('2026-01-01')])
  })

  it('keeps correlation and cause from message to message', async () => {
    await using bus = await createTestBus()
    const seen = tap(bus, 'b')
    await bus.subscribe('a', { group: 'g' }, (payload, { publish }) => publish('b', payload))
    const first = await bus.publish('a', 1)
    await bus.publish('a', 2, { id: 'second', correlationId: 'c' })
    await bus.handled({ count: 2 })
    expect(seen).toMatchObject([
      { correlationId: first.id, causationId: first.id },
      { correlationId: 'c', causationId: 'second' },
    ])
  })
})

describe('publish middleware', () => {
  it('runs in the order given, around confirmation, and may add headers', async () => {
    const log: string[] = []
    const named =
      (name: string): PublishMiddleware =>
      async (context, next) => {
        log.push(`${name} before ${context.topic} ${context.key} ${context.payload}`)
        context.headers[name] = 'yes'
        await next(context)
        log.push(`${name} after`)
      }
    await using bus = await createTestBus({
      publish: { middleware: [named('outer'), named('inner')] },
    })
    const seen = tap(bus)
    bus.on('published', () => log.push('confirmed'))
    const { id } = await bus.publish('orders', 1, { key: 'k', headers: { own: '1' } })
    expect(log).toEqual([
      'outer before orders k 1',
      'inner before orders k 1',
      'confirmed',
      'inner after',
      'outer after',
    ])
    expect(seen).toMatchObject([{ id, headers: { own: '1', outer: 'yes', inner: 'yes' } }])
  })

  it('wraps every member of a batch', async () => {
    let calls = 0
    const counting: PublishMiddleware = (context, next) => {
      calls++
      if (context.payload === 2) throw new Error('not this one')
      return next(context)
    }
    await using bus = await createTestBus({ publish: { middleware: [counting] } })
    const outcomes = await bus.publishBatch(
      'orders',
      [1, 2, 3].map((payload) => ({ payload })),
    )
    expect(calls).toBe(3)
    expect(outcomes).toMatchObject([
      { status: 'confirmed' },
      { status: 'failed', error: { message: expect.stringContaining('not this one') } },
      { status: 'confirmed' },
    ])
  })

  it('checks the headers that middleware added', async () => {
    const adding: PublishMiddleware = (context, next) => {
      context.headers['longshore-mine'] = '1'
      return next(context)
    }
    await using bus = await createTestBus({ publish: { middleware: [adding] } })
    await expect(bus.publish('orders', 1)).rejects.toMatchObject({ code: 'LONGSHORE_HEADER' })
  })

  it('refuses a middleware that calls next twice, but sends again under one id with next.again', async () => {
    const twice: PublishMiddleware = async function twice(context, next) {
      await next(context)
      await next(context)
    }
    const again: PublishMiddleware = async (context, next) => {
      await next(context)
      await next.again(context)
    }
    await using bus = await createTestBus({ publish: { middleware: [twice] } })
    await expect(bus.publish('orders', 1)).rejects.toMatchObject({
      code: 'LONGSHORE_MIDDLEWARE',
      message: expect.stringMatching(
        /middleware 'twice' called next\(\) twice .*next\.again\(context\)/,
      ),
    })
    await using other = await createTestBus({ publish: { middleware: [again] } })
    const seen = tap(other)
    const { id } = await other.publish('orders', 1)
    expect(seen.map((message) => message.id)).toEqual([id, id])
  })

  it('refuses a middleware that passes on no context, or never calls next', async () => {
    const nothing: PublishMiddleware = function nothing(_context, next) {
      return (next as unknown as () => void)()
    }
    await using bus = await createTestBus({ publish: { middleware: [nothing] } })
    await expect(bus.publish('orders', 1)).rejects.toMatchObject({
      code: 'LONGSHORE_MIDDLEWARE',
      message: expect.stringMatching(/middleware 'nothing' must pass on the context/),
    })
    await using silent = await createTestBus({ publish: { middleware: [() => {}] } })
    await expect(silent.publish('orders', 1)).rejects.toMatchObject({
      code: 'LONGSHORE_MIDDLEWARE',
      message: expect.stringMatching(
        /a middleware did not call next\(\), so nothing was published/,
      ),
    })
  })

  it('does not ask the middleware when the options are wrong', async () => {
    let calls = 0
    const counting: PublishMiddleware = (context, next) => {
      calls++
      return next(context)
    }
    await using bus = await createTestBus({ publish: { middleware: [counting] } })
    await expect(bus.publish('orders', 1, { delay: -1 })).rejects.toMatchObject({
      code: 'LONGSHORE_OPTION',
    })
    expect(calls).toBe(0)
  })
})
