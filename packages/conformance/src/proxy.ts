import { createServer, type Server, Socket } from 'node:net'

/** `upstream`: from client to broker. `downstream`: from broker to client. */
export type Direction = 'upstream' | 'downstream'

export interface TcpProxyOptions {
  /** Where the broker listens. */
  readonly host: string
  readonly port: number
  /** For jitter and the share of resets, so that a run can be repeated. Default `Math.random`. */
  readonly random?: () => number
}

interface Link {
  readonly client: Socket
  readonly broker: Socket
}

/** A TCP proxy in front of a broker that breaks the network in between, on purpose. */
export class TcpProxy {
  readonly #server: Server
  readonly #upstream: TcpProxyOptions
  readonly #random: () => number
  readonly #links = new Set<Link>()
  readonly #swallowed = new Set<Direction>()
  readonly #timers = new Set<NodeJS.Timeout>()
  #accepted = 0
  #refuse = false
  #delayMs = 0
  #jitterMs = 0
  #resetShare = 0

  static async start(options: TcpProxyOptions): Promise<TcpProxy> {
    const proxy = new TcpProxy(options)
    await new Promise<void>((resolve, reject) => {
      proxy.#server.once('error', reject)
      proxy.#server.listen(0, '127.0.0.1', resolve)
    })
    return proxy
  }

  private constructor(options: TcpProxyOptions) {
    this.#upstream = options
    this.#random = options.random ?? Math.random
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (client) =>
      this.#join(client),
    )
  }

  readonly host = '127.0.0.1'

  get port(): number {
    const address = this.#server.address()
    return typeof address === 'object' && address !== null ? address.port : 0
  }

  /** Connections open now. */
  get connections(): number {
    return this.#links.size
  }

  /** How often a client came, the refused ones included. */
  get accepted(): number {
    return this.#accepted
  }

  /** Resets every connection; new ones are taken. */
  cut(): void {
    for (const link of this.#links) reset(link)
  }

  /** From now on bytes vanish, on open connections and new ones, which look healthy to both ends. */
  swallow(direction: Direction | 'both' = 'both'): void {
    if (direction !== 'downstream') this.#swallowed.add('upstream')
    if (direction !== 'upstream') this.#swallowed.add('downstream')
  }

  /** Every chunk arrives so much later; order is kept. */
  delay(ms: number, jitterMs = 0): void {
    this.#delayMs = ms
    this.#jitterMs = jitterMs
  }

  /** So large a share of chunks (0 to 1) resets its connection instead of passing. */
  resetShare(share: number): void {
    this.#resetShare = share
  }

  /** New connections are closed at once. */
  refuse(): void {
    this.#refuse = true
  }

  /** Ends all faults for what comes from now on. Bytes that were swallowed stay lost. */
  restore(): void {
    this.#swallowed.clear()
    this.#refuse = false
    this.#delayMs = 0
    this.#jitterMs = 0
    this.#resetShare = 0
  }

  /** Cuts what is open and stops listening. */
  async close(): Promise<void> {
    this.cut()
    for (const timer of this.#timers) clearTimeout(timer)
    this.#timers.clear()
    if (!this.#server.listening) return
    await new Promise<void>((resolve) => this.#server.close(() => resolve()))
  }

  #join(client: Socket): void {
    this.#accepted++
    client.on('error', () => {})
    if (this.#refuse) {
      client.resetAndDestroy()
      return
    }
    const broker = new Socket({ allowHalfOpen: true })
    broker.setNoDelay(true)
    broker.on('error', () => {})
    const link: Link = { client, broker }
    this.#links.add(link)
    const gone = () => {
      if (client.destroyed && broker.destroyed) this.#links.delete(link)
      // While bytes are swallowed, the ends of connections are too: that is what half-open means.
      else if (this.#swallowed.size === 0) reset(link)
    }
    client.on('close', gone)
    broker.on('close', gone)
    this.#pipe(client, broker, 'upstream', link)
    this.#pipe(broker, client, 'downstream', link)
    broker.connect(this.#upstream.port, this.#upstream.host)
  }

  #after(ms: number, work: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer)
      work()
    }, ms)
    this.#timers.add(timer)
  }

  #pipe(from: Socket, to: Socket, direction: Direction, link: Link): void {
    // One timer at a time: two timers that are due together may fire in any order.
    const waiting: { readonly due: number; readonly step: () => void }[] = []
    const run = () => {
      const now = performance.now()
      while (waiting.length > 0 && waiting[0]!.due <= now) waiting.shift()!.step()
      if (waiting.length > 0) this.#after(waiting[0]!.due - now, run)
    }
    const later = (step: () => void) => {
      const now = performance.now()
      const wait = this.#delayMs + (this.#jitterMs > 0 ? this.#random() * this.#jitterMs : 0)
      const due = Math.max(waiting.at(-1)?.due ?? 0, now + wait)
      if (waiting.length === 0 && wait === 0) {
        step()
        return
      }
      waiting.push({ due, step })
      if (waiting.length === 1) this.#after(due - now, run)
    }
    from.on('data', (chunk) => {
      if (this.#swallowed.has(direction)) return
      if (this.#resetShare > 0 && this.#random() < this.#resetShare) {
        reset(link)
        return
      }
      later(() => {
        if (to.writable && !to.write(chunk)) {
          from.pause()
          to.once('drain', () => from.resume())
        }
      })
    })
    from.on('end', () => {
      if (!this.#swallowed.has(direction)) later(() => to.end())
    })
  }
}

function reset(link: Link): void {
  for (const socket of [link.client, link.broker]) {
    // Resetting while connecting would leave the other end waiting for a handshake.
    if (socket.connecting) socket.destroy()
    else socket.resetAndDestroy()
  }
}
