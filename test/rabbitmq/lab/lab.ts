import { randomBytes } from 'node:crypto'
import { TcpProxy } from '@longshore/conformance'
import { type Bus, type BusOptions, connect, type Logger } from '@longshore/core'
import { driver, type RabbitmqConnection, type RabbitmqOptions } from '@longshore/rabbitmq'
import { type ConfirmChannel, connect as connectAmqp } from 'amqplib'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import * as brokers from '../../../scripts/brokers/index.mjs'
import { broker } from '../../brokers/support.js'
import { RabbitmqServer } from '../../conformance/targets/lib/rabbitmq-server.mjs'
import { Log } from './log.js'

const servers = ['rabbitmq', 'rabbitmq@next'] as const

/** Regular expressions of names, as `rabbitmqctl set_permissions` takes them. */
export interface Permissions {
  readonly configure?: string
  readonly write?: string
  readonly read?: string
}

export interface Login {
  readonly user: string
  readonly password: string
}

export interface Connecting extends BusOptions {
  readonly login?: Login
  readonly vhost?: string
  readonly secure?: boolean
  /** In place of the server itself. */
  readonly via?: { readonly host: string; readonly port: number }
  readonly options?: RabbitmqOptions
}

/**
 * Runs the tests on each server, in a virtual host that is theirs alone and is deleted afterwards. Where a server can't be
 * had, one skipped test says why.
 */
export async function onServers(purpose: string, tests: (lab: Lab) => void): Promise<void> {
  for (const name of servers) {
    const info = await broker(name)
    const why = info === undefined ? `${name} is not available` : unmanaged(info.source)
    // Both servers at the same time, on each one test after another.
    describe.concurrent(name, () => {
      describe.sequential(purpose, () => {
        if (info === undefined || why !== undefined) {
          test('all', (context) => context.skip(why))
          return
        }
        const lab = new Lab(name, info, `${purpose}-${randomBytes(4).toString('hex')}`)
        beforeAll(() => lab.open())
        afterEach(() => lab.cleanUp())
        afterAll(() => lab.close())
        tests(lab)
      })
    })
  }
}

function unmanaged(source: string): string | undefined {
  if (source !== 'env') return undefined
  return 'these tests make virtual hosts and users, which they do on no server of the user’s own'
}

/** One server, and what tests do with it. All that a test opens is closed after it. */
export class Lab {
  server!: RabbitmqServer
  readonly guest: Login = { user: 'guest', password: 'guest' }
  readonly #limited: Login
  #hasLimited = false
  #cleanups: (() => unknown)[] = []
  #names = 0

  constructor(
    readonly name: string,
    private readonly info: brokers.BrokerInfo,
    readonly vhost: string,
  ) {
    this.#limited = { user: `limited-${vhost}`, password: 'secret' }
  }

  async open(): Promise<void> {
    this.server = await RabbitmqServer.prepare(this.info, brokers, this.vhost)
  }

  async close(): Promise<void> {
    await this.server.close()
    if (this.#hasLimited) await this.tool('delete_user', this.#limited.user)
  }

  /** Runs after the test, last added first. */
  defer(cleanup: () => unknown): void {
    this.#cleanups.push(cleanup)
  }

  async cleanUp(): Promise<void> {
    const cleanups = this.#cleanups.reverse()
    this.#cleanups = []
    const results: PromiseSettledResult<unknown>[] = []
    for (const cleanup of cleanups) results.push(...(await Promise.allSettled([cleanup()])))
    for (const result of results) if (result.status === 'rejected') throw result.reason
  }

  /** A name that no other test has. */
  unique(hint: string): string {
    return `${hint}-${++this.#names}`
  }

  /** rabbitmqctl. */
  tool(...args: string[]): Promise<string> {
    return this.server.tool(...args)
  }

  url(connecting: Connecting = {}): string {
    const { login = this.guest, vhost = this.vhost, via = this.server.address } = connecting
    const user = [login.user, login.password].map(encodeURIComponent).join(':')
    return `${connecting.secure ? 'amqps' : 'amqp'}://${user}@${via.host}:${via.port}/${encodeURIComponent(vhost)}`
  }

  /** A bus; says nothing to the console unless it is given a logger. */
  async connect(connecting: Connecting = {}): Promise<Bus> {
    const { login: _, vhost: __, via: ___, secure: ____, options = {}, ...busOptions } = connecting
    const logger: Logger = new Log()
    const url = this.url(connecting)
    const bus = await connect({ driver, url, options, logger, ...busOptions })
    this.defer(() => bus.close({ timeout: 2000 }))
    return bus
  }

  /** A bare connection of the client, as another program would have it. */
  async foreign(login = this.guest) {
    const connection = await connectAmqp(this.url({ login }))
    connection.on('error', () => {})
    this.defer(() => connection.close().catch(() => {}))
    return connection
  }

  async proxy(): Promise<TcpProxy> {
    const proxy = await TcpProxy.start(this.server.address)
    this.defer(() => proxy.close())
    return proxy
  }

  /** A user who may do only so much, and from now on in this virtual host. What is left out: everything. */
  async limited(permissions: Permissions): Promise<Login> {
    const { user, password } = this.#limited
    if (!this.#hasLimited) {
      this.#hasLimited = true
      await this.tool('add_user', user, password)
    }
    const { configure = '.*', write = '.*', read = '.*' } = permissions
    await this.tool('set_permissions', '-p', this.vhost, user, configure, write, read)
    return this.#limited
  }

  /** Works on a channel of another program. */
  async channel<T>(work: (channel: ConfirmChannel) => Promise<T>): Promise<T> {
    const connection = await connectAmqp(this.url())
    connection.on('error', () => {})
    try {
      const channel = await connection.createConfirmChannel()
      // Whatever goes wrong rejects what was asked for.
      channel.on('error', () => {})
      return await work(channel)
    } finally {
      await connection.close().catch(() => {})
    }
  }

  /** Messages that wait in a queue. */
  count(queue: string): Promise<number> {
    return this.channel(async (channel) => (await channel.checkQueue(queue)).messageCount)
  }

  /** The names of all queues, or exchanges, of the virtual host. */
  async names(of: 'queues' | 'exchanges'): Promise<string[]> {
    const rows = await this.server.list(`list_${of}`, '-p', this.vhost, 'name')
    return rows.map(({ name = '' }) => name)
  }
}

export function nativeOf(bus: Bus): RabbitmqConnection {
  return bus.native() as RabbitmqConnection
}
