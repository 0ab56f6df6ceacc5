import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { HeaderError } from '@longshore/core'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { checkHeaderSize, headerBytes, sizeOf } from './header-size.js'

/** The client's own, which it doesn't export. */
const require = createRequire(import.meta.url)
const codec = join(dirname(require.resolve('amqplib')), 'lib', 'codec.js')
const { encodeTable } = require(codec) as {
  encodeTable(buffer: Buffer, table: object, offset: number): number
}

test('headers count as what the client makes of them, or a little more', () => {
  const text = fc.string({ unit: 'grapheme', maxLength: 50 })
  const value = fc.oneof(text, fc.integer(), fc.boolean(), fc.constant(null), fc.array(text))
  const table = fc.dictionary(text, fc.oneof(value, fc.dictionary(text, value)))
  const buffer = Buffer.alloc(1_000_000)
  fc.assert(
    fc.property(table, (headers) => {
      expect(sizeOf(headers)).toBeGreaterThanOrEqual(encodeTable(buffer, headers, 0))
    }),
  )
  fc.assert(
    fc.property(fc.dictionary(text, text), (headers) => {
      expect(sizeOf(headers)).toBe(encodeTable(buffer, headers, 0))
    }),
  )
})

test('headers that leave no room for a retry are refused', () => {
  checkHeaderSize({ big: 'x'.repeat(headerBytes - 3000) })
  expect(() => checkHeaderSize({ big: 'x'.repeat(headerBytes - 100) })).toThrow(HeaderError)
})
