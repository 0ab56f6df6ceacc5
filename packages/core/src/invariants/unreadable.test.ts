import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type Codec, topic } from '../index.js'
import { createTestBus } from '../testing/index.js'

const orders = topic('orders', { schema: z.object({ n: z.number() }) })
const bytes = (text: string) => new Uint8Array(Buffer.from(text))

describe('invariant 5: what cannot be decoded or validated skips retries; the next message flows', () => {
  const cases: { what: string; body: Uint8Array; reason: string; name: string; says: RegExp }[] = [
    {
      what: 'a body that is no JSON',
      body: bytes('{"n":'),
      reason: 'undecodable',
      name: 'DecodeError',
      says: /application\/json codec can't decode the body/,
    },
    {
      what: 'an empty body',
      body: new Uint8Array(),
      reason: 'undecodable',
      name: 'DecodeError',
      says: /can't decode/,
    },
    {
      what: 'bad UTF-8',
      body: new Uint8Array([0x22, 0xff, 0x22]),
      reason: 'undecodable',
      name: 'DecodeError',
      says: /can't decode/,
    },
    {
      what: 'a payload that the schema refuses',
      body: bytes('{"n":"one"}'),
      reason: 'invalid',
      name: 'ValidationError',
      says: /a message of 'orders': the schema refuses the payload: n: /,
    },
  ]
  for (const order of ['none', 'key'] as const) {
    for (const { what, body, reason, name, says } of cases) {
      it(`dead-letters ${what} at its first attempt, with the reason (order ${order})`, async () => {
        await using bus = await createTestBus()
        const handled: number[] = []
        await bus.subscribe(orders, { group: 'billing', order }, ({ n }) => void handled.push(n))
        bus.native().broker.publish('orders', body, { key: 'k' })
        await bus.publish(orders, { n: 2 }, { key: 'k' })
        await bus.handled({ within: 0 })
        const [event] = await bus.deadLettered({ within: 0 })
        expect(event).toMatchObject({ attempt: 1, reason, error: { name } })
        expect(handled).toEqual([2])
        for await (const letter of bus.deadLetters(orders, 'billing').list()) {
          expect(letter.body).toEqual(body)
          expect(letter.failure).toMatchObject({ reason, attempts: 1, errorName: name })
          expect(letter.failure.errorMessage).toMatch(says)
        }
        expect(await bus.deadLetters(orders, 'billing').count()).toBe(1)
      })
    }
  }

  it('treats a schema that throws, or rejects, as one that refuses', async () => {
    await using bus = await createTestBus()
    const throwing = topic('throwing', {
      schema: {
        '~standard': {
          version: 1,
          vendor: 'test',
          validate: (value: unknown) => {
            if (value === 'sync') throw new Error('boom')
            if (value === 'async') return Promise.reject(new Error('bang'))
            if (value === 'nothing') return Promise.reject(undefined)
            return { value }
          },
        },
      },
    })
    await bus.subscribe(throwing, { group: 'billing' }, () => {})
    for (const value of ['sync', 'async', 'nothing', 'fine']) await bus.publish('throwing', value)
    const events = await bus.deadLettered({ count: 3, within: 0 })
    expect(events.map(({ reason, attempt }) => [reason, attempt])).toEqual(
      Array(3).fill(['invalid', 1]),
    )
    expect(events.map(({ error }) => error.message)).toEqual([
      expect.stringMatching(/the schema itself threw: boom; a schema should return issues/),
      expect.stringMatching(/the schema itself threw: bang/),
      expect.stringMatching(/the schema itself threw: /),
    ])
    await bus.handled({ within: 0 })
  })

  it('treats a codec that throws a non-error as one that refuses', async () => {
    await using bus = await createTestBus()
    const codec: Codec<string> = {
      contentType: 'text/odd',
      encode: (payload) => bytes(payload),
      decode: () => {
        throw 'a string'
      },
    }
    await bus.subscribe(topic('odd', { codec }), { group: 'billing' }, () => {})
    await bus.publish(topic('odd', { codec }), 'x')
    const [event] = await bus.deadLettered({ within: 0 })
    expect(event).toMatchObject({ reason: 'undecodable', error: { code: 'LONGSHORE_DECODE' } })
    expect(event!.error.message).toMatch(/text\/odd codec can't decode the body: .*"a string"/)
  })

  it('waits for a schema that validates asynchronously, and hands its output to the handler', async () => {
    await using bus = await createTestBus()
    const dates = topic('dates', {
      schema: z
        .object({ at: z.string() })
        .refine(async ({ at }) => at !== 'never')
        .transform(async ({ at }) => ({ at: new Date(at) })),
    })
    const got: Date[] = []
    await bus.subscribe(dates, { group: 'billing' }, ({ at }, { message }) => {
      got.push(at)
      expect(message.payload).toEqual({ at })
    })
    await bus.publish(dates, { at: '2026-01-01' })
    await bus.publish('dates', { at: 'never' })
    await bus.handled()
    expect(got).toEqual([new Date('2026-01-01')])
    expect(await bus.deadLettered()).toMatchObject([{ reason: 'invalid' }])
  })

  it('is not retried by a policy of the group that retries everything else', async () => {
    await using bus = await createTestBus()
    await bus.subscribe(
      orders,
      { group: 'billing', retry: { attempts: 10, immediate: 3 } },
      () => {},
    )
    bus.native().broker.publish('orders', bytes('oops'))
    const [event] = await bus.deadLettered()
    expect(event).toMatchObject({ attempt: 1, reason: 'undecodable' })
    expect(await bus.admin.stats('orders', 'billing')).toMatchObject({ dead: 1, delayed: 0 })
  })

  it('opens no circuit: an unreadable message says nothing of its key', async () => {
    await using bus = await createTestBus()
    await bus.subscribe(orders, { group: 'billing', order: 'key', onKeyFailure: 'park' }, () => {})
    bus.native().broker.publish('orders', bytes('oops'), { key: 'k' })
    await bus.publish(orders, { n: 1 }, { key: 'k' })
    await bus.deadLettered({ within: 0 })
    await bus.handled({ within: 0 })
    expect(await bus.circuits(orders, 'billing').list()).toEqual([])
  })
})
