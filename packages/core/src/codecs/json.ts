import type { Codec } from './codec.js'

function encode(payload: unknown): Uint8Array {
  const text = JSON.stringify(payload)
  if (text === undefined) throw new TypeError(`JSON has no form for ${typeof payload}`)
  return Buffer.from(text)
}

// Decodes strictly: Buffer#toString would turn bad UTF-8 into U+FFFD without a word.
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false })

const codec: Codec<never> = {
  contentType: 'application/json',
  encode,
  decode: (body) => JSON.parse(decoder.decode(body)) as never,
}

/** JSON in UTF-8, the default codec. */
export function json<T = unknown>(): Codec<T> {
  return codec as unknown as Codec<T>
}
