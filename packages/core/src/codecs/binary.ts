import type { Codec } from './codec.js'

const codec: Codec<Uint8Array> = {
  contentType: 'application/octet-stream',
  encode(payload) {
    if (!(payload instanceof Uint8Array)) {
      throw new TypeError(`a Uint8Array is needed, not ${typeof payload}`)
    }
    return new Uint8Array(payload)
  },
  decode: (body) => new Uint8Array(body),
}

/** Bytes as they are; both sides get a copy of their own. */
export function binary(): Codec<Uint8Array> {
  return codec
}
