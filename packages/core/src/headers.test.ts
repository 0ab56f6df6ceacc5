import { describe, expect, it } from 'vitest'
import type { HeaderCharset } from './capabilities.js'
import { checkHeaders } from './headers.js'

const unicode: HeaderCharset = { names: 'unicode', values: 'unicode' }
const narrow: HeaderCharset = { names: 'token', values: 'printable' }

describe('checkHeaders', () => {
  it('gives a frozen copy, names and values as they were', () => {
    const given = { 'X-Ünïcode "q" /': 'a\tb\u0000c', Case: 'kept', empty: '' }
    const headers = checkHeaders(given, unicode, 'memory')
    expect(headers).toEqual(given)
    expect(headers).not.toBe(given)
    expect(Object.isFrozen(headers)).toBe(true)
    expect(checkHeaders(undefined, unicode, 'memory')).toEqual({})
    expect(checkHeaders({}, unicode, 'memory')).toEqual({})
  })

  const wrong: [string, Record<string, string>, RegExp][] = [
    ['a space in a name', { 'a b': 'x' }, /rabbit takes header names of letters, digits/],
    ['a colon in a name', { 'a:b': 'x' }, /header names of letters, digits/],
    ['an umlaut in a name', { ä: 'x' }, /header names of letters, digits/],
    ['a line feed in a value', { a: 'x\ny' }, /header values of printable characters only/],
    ['a carriage return in a value', { a: 'x\r' }, /printable characters/],
    ['a NUL in a value', { a: '\u0000' }, /printable characters/],
    ['a lone surrogate in a value', { a: 'x\udc00' }, /printable characters/],
  ]
  for (const [what, headers, says] of wrong) {
    it(`refuses ${what} where the broker cannot carry it`, () => {
      expect(() => checkHeaders(headers, narrow, 'rabbit')).toThrow(
        expect.objectContaining({
          code: 'LONGSHORE_HEADER',
          message: expect.stringMatching(says),
        }),
      )
    })
  }

  it('takes the rest there', () => {
    expect(checkHeaders({ 'a.b_c-D9': 'ü 😀 "quoted"' }, narrow, 'rabbit')).toEqual({
      'a.b_c-D9': 'ü 😀 "quoted"',
    })
  })

  it('keeps a header named __proto__ a header', () => {
    const headers = checkHeaders(JSON.parse('{"__proto__":"x"}'), unicode, 'memory')
    expect(Object.entries(headers)).toEqual([['__proto__', 'x']])
  })
})
