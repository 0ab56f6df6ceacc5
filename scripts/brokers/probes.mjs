import { parseUrl, Reader, withWire } from './wire.mjs'

/**
 * Each probe speaks just enough of its server's protocol to know that clients will be served, and
 * to learn the version. They need no client library. A server that isn't ready makes them reject.
 * @typedef {(url: string) => Promise<{ version?: string | undefined }>} Probe
 */

/** AMQP 0-9-1: the server's first method, Connection.Start, carries its properties. @type {Probe} */
export function probeRabbitmq(url) {
  return withWire(parseUrl(url, 5672), async (wire) => {
    wire.write(Buffer.from('AMQP\0\0\x09\x01', 'latin1'))
    const header = new Reader(await wire.read(7))
    if (header.byte() !== 1) throw new Error('it speaks another protocol')
    header.int16()
    const body = new Reader(await wire.read(header.int32()))
    if (body.int16() !== 10 || body.int16() !== 10) throw new Error('it sent no Connection.Start')
    body.int16()
    return { version: amqpTable(body).version }
  })
}

/**
 * The texts of a field table; other kinds of values end the reading.
 * @param {Reader} reader
 */
function amqpTable(reader) {
  const table = new Reader(reader.take(reader.int32()))
  /** @type {Record<string, string>} */
  const texts = {}
  while (table.left > 0) {
    const name = table.text(table.byte())
    const kind = table.text(1)
    if (kind === 'S') texts[name] = table.text(table.int32())
    else if (kind === 'F') table.take(table.int32())
    else if (kind === 't') table.byte()
    else break
  }
  return texts
}

/** NATS: the greeting tells version and whether JetStream is on. @type {Probe} */
export function probeNats(url) {
  return withWire(parseUrl(url, 4222), async (wire) => {
    const line = await wire.line()
    if (!line.startsWith('INFO ')) throw new Error('it speaks another protocol')
    const info = JSON.parse(line.slice(5))
    if (!info.jetstream) throw new Error('its JetStream is off; start it with -js')
    return { version: String(info.version) }
  })
}

/**
 * Kafka: ApiVersions says that it speaks Kafka, Metadata that the broker has joined its cluster.
 * The protocol tells no version. @type {Probe}
 */
export function probeKafka(url) {
  return withWire(parseUrl(url, 9092), async (wire) => {
    const versions = await kafkaCall(wire, 18, 0, Buffer.alloc(0))
    if (versions.int16() !== 0) throw new Error('it refused ApiVersions')
    const metadata = await kafkaCall(wire, 3, 1, Buffer.from([0, 0, 0, 0]))
    if (metadata.int32() < 1) throw new Error('its broker has not joined yet')
    return {}
  })
}

/**
 * @param {import('./wire.mjs').Wire} wire
 * @param {number} api
 * @param {number} version
 * @param {Buffer} body
 */
async function kafkaCall(wire, api, version, body) {
  const head = Buffer.alloc(14)
  head.writeInt32BE(10 + body.length, 0)
  head.writeInt16BE(api, 4)
  head.writeInt16BE(version, 6)
  head.writeInt32BE(api, 8)
  head.writeInt16BE(-1, 12)
  wire.write(Buffer.concat([head, body]))
  const size = new Reader(await wire.read(4)).int32()
  const reply = new Reader(await wire.read(size))
  if (reply.int32() !== api) throw new Error('it speaks another protocol')
  return reply
}

/**
 * Postgres: a session is opened and closed. A server that wants a password is up, but doesn't tell
 * its version. @type {Probe}
 */
export function probePostgres(url) {
  const address = parseUrl(url, 5432)
  return withWire(address, async (wire) => {
    const user = address.user || 'postgres'
    const startup = `user\0${user}\0database\0${address.path || user}\0\0`
    const head = Buffer.alloc(8)
    head.writeInt32BE(8 + Buffer.byteLength(startup), 0)
    head.writeInt32BE(196_608, 4)
    wire.write(Buffer.concat([head, Buffer.from(startup)]))
    /** @type {string | undefined} */
    let version
    for (;;) {
      const header = new Reader(await wire.read(5))
      const kind = header.text(1)
      const body = new Reader(await wire.read(header.int32() - 4))
      if (kind === 'E') throw new Error(postgresError(body))
      if (kind === 'R' && body.int32() !== 0) return {}
      if (kind === 'S' && body.zeroText() === 'server_version') version = body.zeroText()
      if (kind === 'Z') {
        wire.write(Buffer.from('X\0\0\0\x04', 'latin1'))
        return { version: version?.split(' ')[0] }
      }
    }
  })
}

/** @param {Reader} body */
function postgresError(body) {
  while (body.left > 1)
    if (body.text(1) === 'M') return body.zeroText()
    else body.zeroText()
  return 'it refused the session'
}

/** Redis: INFO is refused while the data is being loaded. @type {Probe} */
export function probeRedis(url) {
  const address = parseUrl(url, 6379)
  return withWire(address, async (wire) => {
    if (address.password) {
      wire.write(resp('AUTH', ...(address.user ? [address.user] : []), address.password))
      const answer = await wire.line()
      if (!answer.startsWith('+')) throw new Error(answer.slice(1))
    }
    wire.write(resp('PING') + resp('INFO', 'server'))
    const pong = await wire.line()
    if (pong !== '+PONG') throw new Error(pong.slice(1) || 'it speaks another protocol')
    const size = await wire.line()
    if (!size.startsWith('$')) throw new Error(size.slice(1))
    const info = (await wire.read(Number(size.slice(1)))).toString('utf8')
    const valkey = /^valkey_version:(\S+)/m.exec(info)?.[1]
    return { version: valkey ? `valkey ${valkey}` : /^redis_version:(\S+)/m.exec(info)?.[1] }
  })
}

/** @param {string[]} words */
function resp(...words) {
  const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`)
  return `*${words.length}\r\n${parts.join('')}`
}
