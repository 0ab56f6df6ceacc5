import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { text, topic } from './index.js'

describe('topic', () => {
  it('is a frozen value with its parts, JSON by default', () => {
    const schema = z.string()
    const key = (payload: string) => payload
    const orders = topic('orders.placed', { schema, key })
    expect(orders).toMatchObject({ name: 'orders.placed', schema, key })
    expect(orders.codec.contentType).toBe('application/json')
    expect(topic('notes', { codec: text() }).codec.contentType).toMatch(/^text\/plain/)
    expect(Object.isFrozen(orders)).toBe(true)
  })

  it('takes every name that all brokers can hold', () => {
    for (const name of ['a', 'A9', 'orders.placed', 'a_b-c.d', 'x'.repeat(100), '1']) {
      expect(topic(name).name).toBe(name)
    }
  })

  it('refuses all others, with the rule', () => {
    for (const name of [
      '',
      ' ',
      'a b',
      '.a',
      'a.',
      '-a',
      'a_',
      'a..b',
      'a/b',
      'a:b',
      'a*',
      'a>',
      'ü',
      'a\nb',
      'x'.repeat(101),
      undefined,
      null,
      5,
      {},
    ]) {
      expect(() => topic(name as string)).toThrow(
        expect.objectContaining({
          name: 'NameError',
          code: 'LONGSHORE_NAME',
          message: expect.stringMatching(
            /no valid topic name; use 1 to 100 letters, digits, '\.', '_' or '-', a letter or digit first and last, and no '\.\.'/,
          ),
        }),
      )
    }
  })

  it('refuses misspelt options, and what is no schema', () => {
    expect(() => topic('a', { schmea: z.string() } as never)).toThrow(
      /topic\('a'\): there is no option 'schmea'; did you mean 'schema'\?/,
    )
    for (const schema of [{}, null, 5, { '~standard': {} }]) {
      expect(() => topic('a', { schema } as never)).toThrow(
        /schema is no Standard Schema; give one of zod, valibot, arktype/,
      )
    }
    expect(() => topic('a', { key: 'customerId' } as never)).toThrow(
      expect.objectContaining({ code: 'LONGSHORE_OPTION' }),
    )
    expect(() => topic('a', { codec: 'json' } as never)).toThrow(
      expect.objectContaining({ code: 'LONGSHORE_OPTION' }),
    )
  })
})
