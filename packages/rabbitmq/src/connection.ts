import type { Duplex } from 'node:stream'
import {
  AccessError,
  type Clock,
  ClosedError,
  ConnectionError,
  type Logger,
  type Timer,
} from '@longshore/core'
import { type Channel, type ChannelModel, connect, type SocketOptions } from 'amqplib'
import { codeOf, reply, textOf } from './errors.js'
import { gatherWrites } from './gather.js'
import type { Settings } from './settings.js'

/** Pauses between attempts to connect, in milliseconds. */
const firstPause = 50
const longestPause = 5000

/** As much leaves in one system call: Node's default of 16 KiB would be four bodies of 4 KiB. */
const writeBytes = 256 * 1024

/** For one attempt with one host, at most, and at least if there are others. */
const leastMs = 500
const attemptMs = 10_000

export interface LinkHooks {
  /** It is connected, for the first time or again. */
  up(): void
  down(detail: string): void
  blocked(reason: string | undefined): void
}

/**
 * One connection, kept up: whenever it breaks, the next host is tried until it stands again. What lives on it (channels,
 * consumers, topology) is restored by its owners: `whenUp` gives them the new one.
 */
export class Link {
  #model: ChannelModel | undefined
  #closed = false
  #host = 0
  #failures = 0
  #pause: Timer | undefined
  readonly #waiting = new Set<{
    resolve(model: ChannelModel): void
    reject(error: unknown): void
  }>()

  constructor(
    private readonly role: 'publishing' | 'consuming',
    private readonly settings: Settings,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly hooks: LinkHooks,
  ) {}

  get model(): ChannelModel | undefined {
    return this.#model
  }

  /**
   * The first connection; tries until the deadline.
   * @throws ConnectionError, AccessError
   */
  async start(timeoutMs: number): Promise<void> {
    const deadline = this.clock.now() + timeoutMs
    // A host that doesn't even refuse must leave time for the others.
    let refusals = 0
    const each = Math.min(attemptMs, Math.max(leastMs, timeoutMs / this.settings.hosts.length))
    for (;;) {
      const left = deadline - this.clock.now()
      try {
        return this.#connected(await this.#dial(Math.max(1, Math.min(left, each))))
      } catch (error) {
        // Another host may know the user.
        if (error instanceof AccessError && ++refusals >= this.settings.hosts.length) throw error
        if (this.#closed) throw new ClosedError('it was closed while it connected')
        const pause = this.#nextPause()
        if (this.clock.now() + pause >= deadline) {
          throw new ConnectionError(
            `RabbitMQ at ${this.#hosts()} can't be reached within ${timeoutMs} ms: ${(error as Error).message}; check that it runs and that the URL is right`,
            { cause: error },
          )
        }
        await new Promise<void>((resolve) => {
          this.#pause = this.clock.setTimer(resolve, pause)
        })
      }
    }
  }

  #hosts(): string {
    return this.settings.hosts.map(({ hostname, port }) => `${hostname}:${port}`).join(', ')
  }

  #nextPause(): number {
    const pause = Math.min(longestPause, firstPause * 2 ** Math.min(this.#failures++, 10))
    return pause * (0.75 + Math.random() * 0.5)
  }

  /** One attempt with the host whose turn it is; a failure passes the turn on. */
  async #dial(timeout: number): Promise<ChannelModel> {
    const { hosts, secure, username, password, vhost, heartbeat, tls } = this.settings
    const { hostname, port } = hosts[this.#host % hosts.length]!
    const name = `${this.settings.connectionName} (${this.role})`
    const socketOptions = {
      ...tls,
      noDelay: true,
      keepAlive: true,
      writableHighWaterMark: writeBytes,
      timeout,
      clientProperties: { connection_name: name },
    }
    try {
      return await connect(
        {
          protocol: secure ? 'amqps' : 'amqp',
          hostname,
          port,
          username,
          password,
          vhost: encodeURIComponent(vhost),
          heartbeat,
        },
        socketOptions as SocketOptions,
      )
    } catch (error) {
      this.#host++
      throw this.#refusal(error) ?? error
    }
  }

  /** What the broker has against us, if that is why. */
  #refusal(error: unknown): AccessError | undefined {
    const { username, vhost } = this.settings
    if (codeOf(error) === reply.accessRefused) {
      return new AccessError(
        `RabbitMQ refused user '${username}': ${textOf(error)}; check user and password in the URL`,
        { cause: error },
      )
    }
    // The client tells no more than that the connection was closed instead of the virtual host being opened.
    if (/Expected ConnectionOpenOk/.test((error as Error).message)) {
      return new AccessError(
        `RabbitMQ refused the virtual host '${vhost}' to user '${username}': it doesn't exist, the user has no permissions on it, or it has as many connections as it may; ` +
          'see rabbitmqctl list_vhosts, add_vhost, set_permissions and list_vhost_limits',
        { cause: error },
      )
    }
    return undefined
  }

  #connected(model: ChannelModel): void {
    if (this.#closed) {
      model.on('error', () => {})
      model.close().catch(() => {})
      throw new ClosedError('it was closed while it connected')
    }
    const socket = socketOf(model)
    if (socket?.writableEnded || socket?.destroyed) {
      // It ended before anybody could listen, in the packet that said yes.
      model.on('error', () => {})
      throw new ConnectionError('the broker ended the connection at once')
    }
    if (socket !== undefined) gatherWrites(socket)
    this.#model = model
    this.#failures = 0
    let detail = 'the connection ended'
    model.on('error', (error) => {
      detail = error.message
    })
    model.on('blocked', (reason) => this.hooks.blocked(reason))
    model.on('unblocked', () => this.hooks.blocked(undefined))
    model.on('close', (error) => this.#lost(model, error?.message ?? detail))
    this.hooks.up()
    for (const { resolve } of this.#waiting) resolve(model)
    this.#waiting.clear()
  }

  #lost(model: ChannelModel, detail: string): void {
    if (this.#model !== model) return
    this.#model = undefined
    if (this.#closed) return
    this.hooks.down(`the ${this.role} connection to RabbitMQ was lost: ${detail}`)
    this.#again()
  }

  #again(): void {
    this.#pause = this.clock.setTimer(() => void this.#reconnect(), this.#nextPause())
  }

  async #reconnect(): Promise<void> {
    try {
      this.#connected(await this.#dial(attemptMs))
    } catch (error) {
      if (this.#closed) return
      this.logger.warn(`RabbitMQ can't be reached: ${(error as Error).message}`, {
        connection: this.role,
        failures: this.#failures,
      })
      this.#again()
    }
  }

  /** The connection, as soon as there is one. */
  whenUp(): Promise<ChannelModel> {
    if (this.#model !== undefined) return Promise.resolve(this.#model)
    if (this.#closed) return Promise.reject(new ClosedError('the connection is closed'))
    return new Promise((resolve, reject) => {
      this.#waiting.add({ resolve, reject })
    })
  }

  /** Orderly if that works within the time, else at once. */
  async close(timeoutMs: number): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#pause?.cancel()
    for (const { reject } of this.#waiting) reject(new ClosedError('the connection is closed'))
    this.#waiting.clear()
    const model = this.#model
    if (model === undefined) return
    let timer: Timer | undefined
    const late = new Promise<void>((resolve) => {
      timer = this.clock.setTimer(resolve, timeoutMs)
    })
    await Promise.race([model.close().catch(() => {}), late])
    timer?.cancel()
    socketOf(model)?.destroy()
    this.#model = undefined
  }
}

/** Sees to it that no error of a channel goes unheard; `onClose` gets the one that ended it, if one did. */
export function watch<C extends Channel>(
  channel: C,
  onClose: (error: Error | undefined) => void,
): C {
  let last: Error | undefined
  channel.on('error', (error) => {
    last = error
  })
  channel.on('close', () => onClose(last))
  return channel
}

/** Ends a channel. The client's own `close` waits for ever if the connection ends meanwhile. Never rejects. */
export function closeChannel(channel: Channel): Promise<void> {
  return new Promise((resolve) => {
    channel.once('close', resolve)
    // It rejects if the channel is closed already.
    channel.close().then(resolve, () => resolve())
  })
}

/** The client doesn't offer to end a connection without the broker's answer. */
function socketOf(model: ChannelModel): Duplex | undefined {
  return (model.connection as unknown as { stream?: Duplex }).stream
}
