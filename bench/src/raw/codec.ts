import type { Kind, Payloads } from '../session.js'

/** Bodies as bytes, for clients that leave encoding to the application. */
export interface RawCodec<T> {
  readonly contentType: string
  encode(payload: T): Buffer
  decode(body: Buffer): T
}

const codecs: { readonly [K in Kind]: RawCodec<Payloads[K]> } = {
  text: {
    contentType: 'text/plain',
    encode: (payload) => Buffer.from(payload),
    decode: (body) => body.toString(),
  },
  binary: {
    contentType: 'application/octet-stream',
    // The same bytes, not a copy.
    encode: ({ buffer, byteOffset, byteLength }) => Buffer.from(buffer, byteOffset, byteLength),
    decode: (body) => body,
  },
  json: {
    contentType: 'application/json',
    encode: (payload) => Buffer.from(JSON.stringify(payload)),
    decode: (body) => JSON.parse(body.toString()),
  },
}

export function codecOf<K extends Kind>(kind: K): RawCodec<Payloads[K]> {
  return codecs[kind]
}
