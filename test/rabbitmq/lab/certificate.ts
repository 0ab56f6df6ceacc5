import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'

export interface Certificate {
  readonly key: string
  readonly cert: string
}

/**
 * A certificate that signs itself, for `localhost` and 127.0.0.1. Written by hand in DER (X.509, RFC 5280), as Node reads
 * certificates but makes none.
 */
export function selfSigned(name: string): Certificate {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const ecdsaWithSha256 = sequence(oid('2a8648ce3d040302'))
  const issuer = sequence(set(sequence(oid('550403'), element(0x0c, Buffer.from(name)))))
  const day = 24 * 3600 * 1000
  const validity = sequence(time(Date.now() - day), time(Date.now() + 30 * day))
  const names = sequence(
    element(0x82, Buffer.from('localhost')),
    element(0x87, Buffer.from([127, 0, 0, 1])),
  )
  const isAuthority = sequence(element(0x01, Buffer.from([0xff])))
  const extensions = sequence(
    sequence(oid('551d11'), element(0x04, names)),
    sequence(oid('551d13'), element(0x04, isAuthority)),
  )
  const body = sequence(
    element(0xa0, integer(Buffer.from([2]))),
    integer(randomBytes(8)),
    ecdsaWithSha256,
    issuer,
    validity,
    issuer,
    publicKey.export({ type: 'spki', format: 'der' }),
    element(0xa3, extensions),
  )
  const signature = sign('sha256', body, privateKey)
  const der = sequence(
    body,
    ecdsaWithSha256,
    element(0x03, Buffer.concat([Buffer.of(0), signature])),
  )
  const lines = der.toString('base64').replace(/.{64}/g, '$&\n')
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
  }
}

function element(tag: number, content: Buffer): Buffer {
  const { length } = content
  const size = length < 128 ? [length] : [0x82, length >> 8, length & 255]
  return Buffer.concat([Buffer.from([tag, ...size]), content])
}

const sequence = (...parts: Buffer[]) => element(0x30, Buffer.concat(parts))
const set = (...parts: Buffer[]) => element(0x31, Buffer.concat(parts))
const oid = (hex: string) => element(0x06, Buffer.from(hex, 'hex'))
/** With a zero in front, so that it is positive. */
const integer = (bytes: Buffer) =>
  element(0x02, bytes[0]! & 0x80 ? Buffer.concat([Buffer.of(0), bytes]) : bytes)

function time(at: number): Buffer {
  const text = new Date(at).toISOString().replace(/[-:T]|\.\d+/g, '')
  return element(0x18, Buffer.from(text))
}
