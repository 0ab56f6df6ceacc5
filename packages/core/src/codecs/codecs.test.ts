import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { binary } from './binary.js'
import { json } from './json.js'
import { text } from './text.js'

describe('codecs', () => {
  it('json gives back what JSON can say', () => {
    const codec = json()
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(JSON.stringify(codec.decode(codec.encode(value)))).toBe(JSON.stringify(value))
      }),
    )
    expect(codec.contentType).toBe('application/json')
  })

  it('json refuses bad UTF-8 and what is no JSON', () => {
    for (const bytes of [[], [0xff], [0x22, 0xc3, 0x22], [0x7b]]) {
      expect(() => json().decode(new Uint8Array(bytes))).toThrow()
    }
  })

  it('text gives back every well-formed string, a byte order mark included', () => {
    const codec = text()
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (value) => {
        expect(codec.decode(codec.encode(value))).toBe(value)
      }),
    )
    expect(codec.decode(codec.encode('\ufeffx'))).toBe('\ufeffx')
    expect(codec.decode(codec.encode(''))).toBe('')
    expect(() => codec.decode(new Uint8Array([0xff]))).toThrow()
  })

  it('binary gives back all byte values, as copies', () => {
    const codec = binary()
    const bytes = Uint8Array.from({ length: 256 }, (_, i) => i)
    const body = codec.encode(bytes)
    const back = codec.decode(body)
    expect([...back]).toEqual([...bytes])
    bytes[0] = 9
    expect(body[0]).toBe(0)
    back[1] = 9
    expect(body[1]).toBe(1)
    expect(codec.encode(new Uint8Array()).byteLength).toBe(0)
    expect(Buffer.isBuffer(codec.decode(body))).toBe(false)
  })
})
