/** Turns payloads into bytes and back. Encoding must copy: what the caller changes later must not change the body. */
export interface Codec<T = unknown> {
  readonly contentType: string
  /** @throws anything; the core wraps it in an `EncodeError` */
  encode(payload: T): Uint8Array
  /** @throws anything; the core wraps it in a `DecodeError`. Must not keep or change `body`. */
  decode(body: Uint8Array): T
}
