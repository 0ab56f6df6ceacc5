import type { Codec } from './codec.js'

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

const codec: Codec<string> = {
  contentType: 'text/plain; charset=utf-8',
  encode(payload) {
    if (typeof payload !== 'string')
      throw new TypeError(`a string is needed, not ${typeof payload}`)
    return Buffer.from(payload)
  },
  decode: (body) => decoder.decode(body),
}

/** Strings in UTF-8. */
export function text(): Codec<string> {
  return codec
}
