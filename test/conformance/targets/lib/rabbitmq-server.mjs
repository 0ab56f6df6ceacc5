// What the hooks do to a RabbitMQ server, by its own client and by rabbitmqctl.
import { connect } from 'amqplib'
import { parseUrl } from '../../../../scripts/brokers/wire.mjs'

/** @typedef {import('./rabbitmq.mjs').Brokers} Brokers */
/** @typedef {import('@longshore/conformance').Repair} Repair */
/** @typedef {import('amqplib').ConfirmChannel} ConfirmChannel */

const refuse = { arguments: { 'x-max-length': 0, 'x-overflow': 'reject-publish' } }

export class RabbitmqServer {
  #name
  #brokers
  #login

  /**
   * Makes a virtual host, except on a server of the user's own.
   * @param {import('../../../../scripts/brokers/types.mjs').BrokerInfo} info
   * @param {Brokers} brokers
   * @param {string} vhost
   */
  static async prepare(info, brokers, vhost) {
    const managed = info.source !== 'env'
    const server = new RabbitmqServer(info, brokers, managed ? vhost : undefined)
    if (managed) {
      await server.tool('add_vhost', vhost)
      await server.#allowWriting('.*')
    }
    return server
  }

  /** @param {string} pattern of exchanges and queues */
  async #allowWriting(pattern) {
    await this.tool('set_permissions', '-p', this.vhost, this.#login.user, '.*', pattern, '.*')
  }

  /**
   * Nothing may be published to these exchanges. A channel that did before may go on.
   * @param {string} pattern
   * @returns {Promise<Repair>}
   */
  async forbidWriting(pattern) {
    await this.#allowWriting(`^(?!${pattern}$).*`)
    return () => this.#allowWriting('.*')
  }

  /**
   * @param {import('../../../../scripts/brokers/types.mjs').BrokerInfo} info
   * @param {Brokers} brokers
   * @param {string | undefined} vhost
   */
  constructor(info, brokers, vhost) {
    const { host, port, user, password, path } = parseUrl(info.url, 5672)
    this.#name = info.name
    this.#brokers = brokers
    this.managed = vhost !== undefined
    this.vhost = vhost ?? (path || '/')
    this.address = { host, port }
    this.#login = { user: user || 'guest', password: password || 'guest' }
  }

  /**
   * @param {{ host: string, port: number, password?: string }} [at] default: the server itself
   */
  url({ host, port, password = this.#login.password } = this.address) {
    const login = [this.#login.user, password].map(encodeURIComponent).join(':')
    return `amqp://${login}@${host}:${port}/${encodeURIComponent(this.vhost)}`
  }

  /** @param {string[]} args of rabbitmqctl */
  tool(...args) {
    return this.#brokers.tool(this.#name, ['-q', ...args])
  }

  /**
   * Rows of one of its lists.
   * @param {string[]} args
   * @returns {Promise<Record<string, string>[]>}
   */
  async list(...args) {
    return JSON.parse(await this.tool(...args, '--formatter', 'json'))
  }

  /**
   * A channel of a connection of its own.
   * @template T
   * @param {(channel: ConfirmChannel) => Promise<T>} use
   */
  async withChannel(use) {
    const connection = await connect(this.url())
    try {
      return await use(await connection.createConfirmChannel())
    } finally {
      await connection.close()
    }
  }

  /** @param {boolean} hard */
  async restart(hard) {
    await this.#brokers.restart(this.#name, { hard })
  }

  /** At once: an orderly end takes seconds, and `restart` is one. */
  async stop() {
    await this.#brokers.stop(this.#name, { hard: true })
  }

  async start() {
    await this.#brokers.start(this.#name)
  }

  /** Deletes the virtual host with all that is in it. */
  async close() {
    if (this.managed) await this.tool('delete_vhost', this.vhost)
  }

  async countConnections() {
    const rows = await this.list('list_connections', 'pid', 'vhost')
    return rows.filter((row) => row.vhost === this.vhost).length
  }

  /** From now on the broker takes no messages, as it has no memory for them. @returns {Promise<Repair>} */
  async exhaustMemory() {
    const monitor = 'vm_memory_monitor'
    const before = (await this.tool('eval', `${monitor}:get_vm_memory_high_watermark().`)).trim()
    await this.tool('set_vm_memory_high_watermark', '0.00001')
    return async () => {
      await this.tool('set_vm_memory_high_watermark', before)
    }
  }

  /**
   * @param {string} topic
   * @param {{ body: Uint8Array, headers?: Readonly<Record<string, string>>, key?: string }} message
   */
  publish(topic, { body, headers = {}, key = '' }) {
    return this.withChannel(async (channel) => {
      channel.publish(topic, key, Buffer.from(body), { headers })
      await channel.waitForConfirms()
    })
  }

  /** @param {string} topic @returns {Promise<import('@longshore/conformance').NativeReader>} */
  async read(topic) {
    const connection = await connect(this.url())
    const channel = await connection.createChannel()
    const { queue } = await channel.assertQueue('', { exclusive: true })
    await channel.bindQueue(queue, topic, '#')
    return {
      async next() {
        for (;;) {
          const message = await channel.get(queue, { noAck: true })
          if (message) return nativeMessage(message)
          await new Promise((resolve) => setTimeout(resolve, 5))
        }
      },
      close: () => connection.close(),
    }
  }

  /** @param {string} topic @param {string} group */
  async deleteTopology(topic, group) {
    const base = `${topic}..${group}`
    const belongs = (/** @type {string} */ name) => name === base || name.startsWith(`${base}..`)
    const [queues, exchanges] = await Promise.all([
      this.list('list_queues', '-p', this.vhost, 'name'),
      this.list('list_exchanges', '-p', this.vhost, 'name'),
    ])
    const names = (/** @type {Record<string, string>[]} */ rows) =>
      rows.map(({ name = '' }) => name).filter(belongs)
    await this.withChannel(async (channel) => {
      await channel.deleteExchange(topic)
      for (const name of names(exchanges)) await channel.deleteExchange(name)
      for (const name of names(queues)) await channel.deleteQueue(name)
    })
  }

  /**
   * Publishing to the topic is refused: all that its exchange leads to is a queue without room.
   * @param {string} topic
   * @returns {Promise<Repair>}
   */
  async rejectPublishes(topic) {
    const columns = ['source_name', 'destination_name', 'destination_kind', 'routing_key']
    const rows = await this.list('list_bindings', '-p', this.vhost, ...columns)
    const bindings = rows.filter((row) => row.source_name === topic)
    const refusing = `${topic}..refusing`
    await this.withChannel(async (channel) => {
      await channel.assertQueue(refusing, refuse)
      await channel.bindQueue(refusing, topic, '#')
      for (const one of bindings) await bind(channel, one, 'unbind')
    })
    let broken = true
    return async () => {
      if (!broken) return
      broken = false
      await this.withChannel(async (channel) => {
        for (const one of bindings) await bind(channel, one, 'bind')
        await channel.deleteQueue(refusing)
      })
    }
  }
}

/**
 * @param {ConfirmChannel} channel
 * @param {Record<string, string>} binding
 * @param {'bind' | 'unbind'} how
 */
function bind(channel, binding, how) {
  const { source_name = '', destination_name = '', destination_kind, routing_key = '' } = binding
  const what = destination_kind === 'queue' ? 'Queue' : 'Exchange'
  return channel[`${how}${what}`](destination_name, source_name, routing_key)
}

/** @param {import('amqplib').GetMessage} message */
function nativeMessage({ content, properties }) {
  /** @type {Record<string, string>} */
  const headers = {}
  for (const [name, value] of Object.entries(properties.headers ?? {}))
    headers[name] = String(value)
  const key = headers['longshore-key']
  return {
    body: content,
    headers,
    id: properties.messageId,
    contentType: properties.contentType,
    ...(key === undefined ? {} : { key }),
  }
}
