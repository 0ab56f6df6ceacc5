import { connect as connectPlain, isIP } from 'node:net'
import { connect as connectTls } from 'node:tls'

/** A connection that is read by counts of bytes or by lines, with one deadline for everything. */
export class Wire {
  /** @type {import('node:net').Socket} */
  #socket
  #buffer = Buffer.alloc(0)
  /** @type {Error | undefined} */
  #error
  #wake = () => {}

  /**
   * @param {{ host: string, port: number, tls?: boolean }} address
   * @param {number} [timeout] milliseconds for the whole exchange
   */
  constructor({ host, port, tls }, timeout = 2000) {
    const servername = isIP(host) ? {} : { servername: host }
    this.#socket = tls
      ? connectTls({ host, port, ...servername, rejectUnauthorized: false })
      : connectPlain({ host, port })
    this.#socket.on('data', (chunk) => {
      this.#buffer = Buffer.concat([this.#buffer, chunk])
      this.#wake()
    })
    this.#socket.on('error', (error) => this.#fail(error))
    this.#socket.on('close', () => this.#fail(new Error('it closed the connection')))
    const timer = setTimeout(() => this.#fail(new Error('it did not answer in time')), timeout)
    this.#socket.on('close', () => clearTimeout(timer))
  }

  /** @param {Error} error */
  #fail(error) {
    this.#error ??= error
    this.#socket.destroy()
    this.#wake()
  }

  /** @param {Buffer | string} data */
  write(data) {
    this.#socket.write(data)
  }

  /**
   * @param {number} count
   * @returns {Promise<Buffer>}
   */
  async read(count) {
    if (count > 16_000_000) throw new Error('it speaks another protocol')
    await this.#until(() => this.#buffer.length >= count)
    const bytes = this.#buffer.subarray(0, count)
    this.#buffer = this.#buffer.subarray(count)
    return bytes
  }

  /** Reads a line without its end. */
  async line() {
    await this.#until(() => this.#buffer.includes('\n'))
    const bytes = await this.read(this.#buffer.indexOf('\n') + 1)
    return bytes.toString('utf8').trimEnd()
  }

  /** @param {() => boolean} ready */
  async #until(ready) {
    while (!ready()) {
      if (this.#error) throw this.#error
      await new Promise((resolve) => {
        this.#wake = () => resolve(undefined)
      })
    }
  }

  close() {
    this.#socket.end()
    this.#socket.destroy()
  }
}

/**
 * Opens a connection for one exchange and closes it again.
 * @template T
 * @param {{ host: string, port: number, tls?: boolean }} address
 * @param {(wire: Wire) => Promise<T>} exchange
 */
export async function withWire(address, exchange) {
  const wire = new Wire(address)
  try {
    return await exchange(wire)
  } finally {
    wire.close()
  }
}

/** Reads a buffer from its start on. */
export class Reader {
  #bytes
  #at = 0

  /** @param {Buffer} bytes */
  constructor(bytes) {
    this.#bytes = bytes
  }

  get left() {
    return this.#bytes.length - this.#at
  }

  /** @param {number} count */
  take(count) {
    if (count < 0 || count > this.left) throw new Error('it speaks another protocol')
    this.#at += count
    return this.#bytes.subarray(this.#at - count, this.#at)
  }

  /** @param {number} count */
  text(count) {
    return this.take(count).toString('utf8')
  }

  byte() {
    return this.take(1).readUInt8()
  }

  int16() {
    return this.take(2).readInt16BE()
  }

  int32() {
    return this.take(4).readInt32BE()
  }

  /** Kafka's variable-length number. */
  varint() {
    for (let value = 0, shift = 0; ; shift += 7) {
      const byte = this.byte()
      value += (byte & 0x7f) * 2 ** shift
      if (byte < 0x80) return value
    }
  }

  /** A text up to a zero byte. */
  zeroText() {
    const end = this.#bytes.indexOf(0, this.#at)
    const text = this.text(end - this.#at)
    this.take(1)
    return text
  }
}

/**
 * @param {string} url of the form `scheme://user:password@host:port/path`; a bare `host:port` and
 *   lists of them are understood too
 * @param {number} defaultPort
 */
export function parseUrl(url, defaultPort) {
  const first = url.split(',')[0] ?? ''
  const parsed = new URL(first.includes('://') ? first : `tcp://${first}`)
  const host = parsed.hostname.replace(/^\[|\]$/g, '') || '127.0.0.1'
  return {
    host,
    port: Number(parsed.port) || defaultPort,
    tls: /^(amqps|rediss|tls)[:]/.test(parsed.protocol),
    user: decodeURIComponent(parsed.username),
    password: decodeURIComponent(parsed.password),
    path: decodeURIComponent(parsed.pathname.replace(/^\//, '')),
  }
}
