import { AckPolicy, jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect as connectNats } from '@nats-io/transport-node'
import { connect as connectAmqp } from 'amqplib'
import { Redis } from 'ioredis'
import { Kafka, logLevel } from 'kafkajs'
import pg from 'pg'
import { beforeAll, describe, expect, type TestContext, test } from 'vitest'
import { BROKERS, type BrokerInfo } from '../../scripts/brokers/index.mjs'
import { broker, signal } from './support.js'

const unique = () => `roundtrip-${process.pid}-${Math.random().toString(36).slice(2)}`

/** One message there and back, with the client that the drivers use. */
const roundTrips: Record<string, (info: BrokerInfo) => Promise<void>> = {
  async rabbitmq({ url, version }) {
    const connection = await connectAmqp(url)
    try {
      expect(connection.connection.serverProperties.version).toBe(version)
      const channel = await connection.createConfirmChannel()
      const queue = unique()
      await channel.assertQueue(queue, { durable: true, arguments: { 'x-queue-type': 'quorum' } })
      channel.sendToQueue(queue, Buffer.from('hello'), { persistent: true, messageId: 'one' })
      await channel.waitForConfirms()
      const received = signal<string>('message')
      await channel.consume(queue, (message) => {
        if (!message) return received.reject(new Error('cancelled'))
        channel.ack(message)
        received.resolve(`${message.properties.messageId} ${message.content}`)
      })
      expect(await received.promise).toBe('one hello')
      await channel.deleteQueue(queue)
    } finally {
      await connection.close()
    }
  },

  async nats({ url, version }) {
    const connection = await connectNats({ servers: url })
    try {
      expect(connection.info?.version).toBe(version)
      const manager = await jetstreamManager(connection)
      const stream = unique()
      await manager.streams.add({ name: stream, subjects: [`${stream}.>`] })
      await manager.consumers.add(stream, { durable_name: 'one', ack_policy: AckPolicy.Explicit })
      const client = jetstream(connection)
      const { seq } = await client.publish(`${stream}.a`, 'hello', { msgID: 'one' })
      const consumer = await client.consumers.get(stream, 'one')
      const message = await consumer.next({ expires: 10_000 })
      expect(message?.string()).toBe('hello')
      expect(await message?.ackAck()).toBe(true)
      expect((await consumer.info()).ack_floor.stream_seq).toBe(seq)
      await manager.streams.delete(stream)
    } finally {
      await connection.close()
    }
  },

  async kafka({ url }) {
    const brokers = [url.replace('kafka://', '')]
    const kafka = new Kafka({ clientId: 'roundtrip', brokers, logLevel: logLevel.NOTHING })
    const topic = unique()
    const [admin, producer] = [kafka.admin(), kafka.producer()]
    const consumer = kafka.consumer({ groupId: topic })
    await Promise.all([admin.connect(), producer.connect(), consumer.connect()])
    try {
      await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true })
      const messages = [{ key: 'one', value: 'hello' }]
      const [sent] = await producer.send({ topic, acks: -1, messages })
      expect(sent?.errorCode).toBe(0)
      await consumer.subscribe({ topic, fromBeginning: true })
      const received = signal<string>('message', 30_000)
      await consumer.run({
        eachMessage: async ({ message }) => received.resolve(`${message.key} ${message.value}`),
      })
      expect(await received.promise).toBe('one hello')
    } finally {
      await consumer.disconnect()
      await admin.deleteTopics({ topics: [topic] })
      await Promise.all([admin.disconnect(), producer.disconnect()])
    }
  },

  async postgres({ url, version }) {
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 })
    await client.connect()
    const slot = unique().replaceAll('-', '_')
    try {
      const one = async (sql: string, values: unknown[] = []) =>
        Object.values((await client.query(sql, values)).rows[0] ?? {})[0]
      expect(await one('show server_version')).toMatch(version)
      expect(await one('show wal_level')).toBe('logical')
      await client.query(`create table ${slot} (id int primary key, body text)`)
      await one('select lsn from pg_create_logical_replication_slot($1, $2)', [slot, 'wal2json'])
      const notified = signal<string | undefined>('notification')
      client.on('notification', ({ payload }) => notified.resolve(payload))
      await client.query(`listen "${slot}"`)
      await client.query(`insert into ${slot} values (1, 'hello')`)
      await client.query('select pg_notify($1, $2)', [slot, 'look'])
      expect(await notified.promise).toBe('look')
      expect(await one(`select body from ${slot} where id = 1`)).toBe('hello')
      const changes = 'select data from pg_logical_slot_get_changes($1, null, null)'
      expect(await one(changes, [slot])).toContain('hello')
    } finally {
      await client.query(
        'select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1',
        [slot],
      )
      await client.query(`drop table if exists ${slot}`)
      await client.end()
    }
  },

  async redis({ url, version }) {
    const redis = new Redis(url)
    try {
      expect(await redis.info('server')).toContain(`redis_version:${version}`)
      expect(await redis.config('GET', 'appendonly')).toContain('yes')
      const stream = unique()
      await redis.xgroup('CREATE', stream, 'group', '$', 'MKSTREAM')
      const id = await redis.xadd(stream, '*', 'body', 'hello')
      const read = await redis.xreadgroup(
        'GROUP',
        'group',
        'me',
        'COUNT',
        1,
        'STREAMS',
        stream,
        '>',
      )
      expect(read).toEqual([[stream, [[id, ['body', 'hello']]]]])
      expect(await redis.xack(stream, 'group', String(id))).toBe(1)
      expect(await redis.xpending(stream, 'group')).toEqual([0, null, null, null])
      await redis.del(stream)
    } finally {
      redis.disconnect()
    }
  },
}

describe.each(BROKERS)('%s', (name) => {
  let info: BrokerInfo | undefined
  beforeAll(async () => {
    info = await broker(name)
  }, 600_000)

  test('takes a message and gives it back', { timeout: 60_000 }, async (context: TestContext) => {
    if (!info) return context.skip(`${name} is not available`)
    expect(info).toMatchObject({ name, version: expect.stringMatching(/^\d+\.\d+/) })
    await roundTrips[name.replace('@next', '')]?.(info)
  })
})
