/**
 * The bare counterpart of the RabbitMQ driver: amqplib as one uses it for messages that must not be lost. A durable quorum
 * queue behind a topic exchange, persistent messages, confirms, acks by hand, one connection for each direction.
 */
import { type Channel, type ConfirmChannel, type ConsumeMessage, connect } from 'amqplib'
import { emptied } from '../emptied.js'
import type { Entry, Kind, Payloads, RawClient, Session, Settings } from '../session.js'
import { codecOf, type RawCodec } from './codec.js'
import { workersOf } from './workers.js'

let sessions = 0

class AmqpSession<T> implements Session<T> {
  readonly #out: ConfirmChannel
  readonly #in: Channel
  /** Of the exchange and of its one queue. */
  readonly #name: string
  readonly #settings: Settings
  readonly #codec: RawCodec<T>
  readonly #disconnect: () => Promise<unknown>
  #take!: (message: ConsumeMessage, key: string) => void
  #consumerTag = ''
  #published = 0
  #unacked = 0

  constructor(
    out: ConfirmChannel,
    input: Channel,
    name: string,
    settings: Settings,
    codec: RawCodec<T>,
    disconnect: () => Promise<unknown>,
  ) {
    this.#out = out
    this.#in = input
    this.#name = name
    this.#settings = settings
    this.#codec = codec
    this.#disconnect = disconnect
  }

  async consume(handler: (payload: T) => Promise<void>): Promise<void> {
    this.#take = workersOf(this.#settings, async (message: ConsumeMessage) => {
      await handler(this.#codec.decode(message.content))
      this.#in.ack(message)
      this.#unacked--
    })
    await this.resume()
  }

  publish(payload: T, key = ''): Promise<void> {
    const options = {
      persistent: true,
      contentType: this.#codec.contentType,
      messageId: `${this.#name}-${++this.#published}`,
      timestamp: Math.floor(Date.now() / 1000),
    }
    return new Promise((resolve, reject) => {
      this.#out.publish(this.#name, key, this.#codec.encode(payload), options, (error) =>
        error ? reject(error) : resolve(),
      )
    })
  }

  publishBatch(entries: readonly Entry<T>[]): Promise<unknown> {
    return Promise.all(entries.map(({ payload, key }) => this.publish(payload, key)))
  }

  /** What was prefetched before is still handled. */
  async pause(): Promise<void> {
    if (this.#consumerTag === '') return
    await this.#in.cancel(this.#consumerTag)
    this.#consumerTag = ''
  }

  async resume(): Promise<void> {
    const { consumerTag } = await this.#in.consume(this.#name, (message) => {
      // Null if the broker cancelled the consumer: the ledger tells what is missing then.
      if (message === null) return
      this.#unacked++
      this.#take(message, message.fields.routingKey)
    })
    this.#consumerTag = consumerTag
  }

  async close(): Promise<void> {
    // Closing right after many acks loses those that the server's end of the channel still holds back for a quorum queue. To
    // cancel first waits for the queue, and so for them.
    await this.pause()
    await this.#in.close()
    // Whatever the broker saw no ack for is back in the queue now.
    const left =
      this.#unacked ||
      (await emptied(async () => (await this.#out.checkQueue(this.#name)).messageCount))
    await this.#out.deleteQueue(this.#name)
    await this.#out.deleteExchange(this.#name)
    await this.#disconnect()
    if (left > 0) throw new Error(`${left} messages were not acked`)
  }
}

/** amqplib on the broker of this URL. */
export function rabbitmq(url: string): RawClient {
  return {
    name: 'amqplib',
    setup: { queueType: 'quorum' },
    async open<K extends Kind>(settings: Settings<K>) {
      const [publishing, consuming] = await Promise.all([
        connect(url, { noDelay: true }),
        connect(url, { noDelay: true }),
      ])
      const [out, input] = await Promise.all([
        publishing.createConfirmChannel(),
        consuming.createChannel(),
      ])
      const name = `bench-raw-${process.pid}-${++sessions}`
      await out.assertExchange(name, 'topic', { durable: true })
      await out.assertQueue(name, { durable: true, arguments: { 'x-queue-type': 'quorum' } })
      await out.bindQueue(name, name, '#')
      await input.prefetch(settings.prefetch ?? 2 * settings.concurrency, false)
      const disconnect = () => Promise.all([publishing.close(), consuming.close()])
      const codec = codecOf(settings.kind)
      return new AmqpSession<Payloads[K]>(out, input, name, settings, codec, disconnect)
    },
  }
}
