import type { Codec } from './codec.js'

/** A copy out of Node's pool: an ArrayBuffer of its own costs several times as much. */
function copy(bytes: Uint8Array): Uint8Array {
  const pooled = Buffer.from(bytes)
  return new Uint8Array(pooled.buffer, pooled.byteOffset, pooled.byteLength)
}

const codec: Codec<Uint8Array> = {
  contentType: 'application/octet-stream',
  encode(payload) {
    if (!(payload instanceof Uint8Array)) {
      throw new TypeError(`a Uint8Array is needed, not ${typeof payload}`)
    }
    return copy(payload)
  },
  decode: copy,
}

/** Bytes as they are; both sides get a copy of their own. */
export function binary(): Codec<Uint8Array> {
  return codec
}
