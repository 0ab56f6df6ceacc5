import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { deadLetterReasons, type Failure } from './dead-letter.js'
import { decodeFailure, encodeFailure } from './failure-headers.js'
import { isPrintable } from './headers.js'

const failure: Failure = {
  reason: 'exhausted',
  errorName: 'TypeError',
  errorMessage: 'no "total" in C:\\orders',
  errorStack: 'TypeError: no\n    at handler (orders.ts:3:5)\r\n',
  attempts: 5,
  topic: 'orders.placed',
  group: 'billing',
  firstFailedAt: 1_700_000_000_000,
  lastFailedAt: 1_700_000_060_000,
}

/** Any UTF-16 units: control characters, line separators and lone surrogates, too. */
const anyText = (maxLength: number) =>
  fc.oneof(
    fc.string({ unit: 'binary', maxLength: maxLength / 2 }),
    fc
      .array(fc.integer({ min: 0, max: 0xffff }), { maxLength })
      .map((units) => String.fromCharCode(...units)),
    fc
      .array(fc.constantFrom(' ', '\\', '"', '\t', '\u00a0', '\u2028', '\u007f', '\ufeff', 'u'), {
        maxLength,
      })
      .map((parts) => parts.join('')),
  )

const time = fc.integer({ min: 0, max: 8_640_000_000_000_000 })

const anyFailure: fc.Arbitrary<Failure> = fc.record({
  reason: fc.constantFrom(...deadLetterReasons),
  errorName: anyText(200),
  errorMessage: anyText(4000),
  errorStack: anyText(8000),
  attempts: fc.integer({ min: 1, max: 1000 }),
  topic: fc.stringMatching(/^[a-z0-9.]{1,20}$/),
  group: fc.stringMatching(/^[a-z0-9]{1,20}$/),
  firstFailedAt: time,
  lastFailedAt: time,
})

describe('a failure in headers', () => {
  it('is what it was, whatever the texts are', () => {
    fc.assert(
      fc.property(anyFailure, (given) => {
        expect(decodeFailure(encodeFailure(given))).toEqual(given)
      }),
    )
  })

  it('has printable values only, which trimming leaves alone', () => {
    fc.assert(
      fc.property(anyFailure, (given) => {
        const headers = encodeFailure(given)
        for (const value of Object.values(headers)) {
          expect(isPrintable(value)).toBe(true)
          expect(value).not.toMatch(/[\u0080-\u009f\u2028\u2029]/)
          expect(value.trim()).toBe(value)
        }
      }),
    )
  })

  it('leaves 54 KiB of an AMQP frame to the headers of the message, whatever the texts are', () => {
    const most = '\0'.repeat(100_000)
    const whole = { ...failure, errorName: most, errorMessage: most, errorStack: most }
    const { length } = Object.entries(encodeFailure(whole)).flat().join('')
    expect(length).toBeLessThan(74 * 1024)
  })

  it('is readable without Longshore', () => {
    expect(encodeFailure(failure)).toEqual({
      'longshore-dl-reason': 'exhausted',
      'longshore-dl-error-name': 'TypeError',
      'longshore-dl-error-message': 'no \\"total\\" in C:\\\\orders',
      'longshore-dl-error-stack': 'TypeError: no\\n    at handler (orders.ts:3:5)\\r\\n',
      'longshore-dl-attempts': '5',
      'longshore-dl-topic': 'orders.placed',
      'longshore-dl-group': 'billing',
      'longshore-dl-first-failed-at': '1700000000000',
      'longshore-dl-last-failed-at': '1700000060000',
    })
  })

  it('is cut where it is too long, between characters', () => {
    const decoded = decodeFailure(
      encodeFailure({
        ...failure,
        errorName: 'N'.repeat(300),
        errorMessage: `${'m'.repeat(3999)}😀`,
        errorStack: '\0'.repeat(9000),
      }),
    )
    expect(decoded?.errorName).toBe('N'.repeat(200))
    expect(decoded?.errorMessage).toBe('m'.repeat(3999))
    expect(decoded?.errorStack).toBe('\0'.repeat(8000))
  })

  it('may hold numbers as numbers, and texts that somebody else wrote unescaped', () => {
    const headers = {
      ...encodeFailure(failure),
      'longshore-dl-attempts': 5,
      'longshore-dl-first-failed-at': failure.firstFailedAt,
      'longshore-dl-error-message': 'a "quoted" C:\\x',
    }
    expect(decodeFailure(headers)).toEqual({ ...failure, errorMessage: 'a "quoted" C:\\x' })
  })

  it('is none if a part is missing or no part of a failure', () => {
    const whole: Record<string, unknown> = encodeFailure(failure)
    expect(decodeFailure({})).toBeUndefined()
    for (const name of Object.keys(whole)) {
      expect(decodeFailure({ ...whole, [name]: undefined }), name).toBeUndefined()
      expect(decodeFailure({ ...whole, [name]: { nested: 1 } }), name).toBeUndefined()
    }
    for (const name of ['reason', 'attempts', 'first-failed-at', 'last-failed-at']) {
      expect(decodeFailure({ ...whole, [`longshore-dl-${name}`]: '' }), name).toBeUndefined()
      expect(decodeFailure({ ...whole, [`longshore-dl-${name}`]: 'soon' }), name).toBeUndefined()
    }
  })
})
