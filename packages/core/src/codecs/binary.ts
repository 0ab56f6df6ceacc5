import type { Codec } from './codec.js'

/** Copies of this size share one ArrayBuffer among several: one of its own costs three times as much. */
const pooled = { from: 2048, upTo: 16 * 1024, slab: 64 * 1024 }

let slab = new ArrayBuffer(0)
let used = 0

/** Node's own pool serves what is smaller; a larger one would keep a whole slab alive for little. */
function copy(bytes: Uint8Array): Uint8Array {
  const size = bytes.byteLength
  if (size < pooled.from || size > pooled.upTo) {
    const own = Buffer.from(bytes)
    return new Uint8Array(own.buffer, own.byteOffset, size)
  }
  if (used + size > slab.byteLength) {
    slab = Buffer.allocUnsafeSlow(pooled.slab).buffer
    used = 0
  }
  const own = new Uint8Array(slab, used, size)
  own.set(bytes)
  // Aligned, so that any typed array can be laid over it.
  used += (size + 7) & ~7
  return own
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
