import { type Bus, ConflictError, NotFoundError, OptionError } from '@longshore/core'
import type { RabbitmqOptions } from '@longshore/rabbitmq'
import { test } from 'vitest'
import { Bystander, bystanders } from './lab/bystander.js'
import { refusal } from './lab/errors.js'
import { onServers } from './lab/lab.js'

/** What exists already, made otherwise. */
await onServers('conflicts', (lab) => {
  const subscribe = (bus: Bus, topic: string, order: 'none' | 'key' = 'none', group = 'g') =>
    bus.subscribe(topic, { group, order }, () => {})

  /** A bus with a bystander, and the bare client beside it. */
  async function start(options: RabbitmqOptions = {}) {
    const bus = await lab.connect({ options })
    const bystander = await Bystander.on(bus)
    const connection = await lab.foreign()
    const channel = await connection.createChannel()
    return { bus, bystander, channel, topic: lab.unique('orders') }
  }

  test('a queue of another type', async () => {
    const { bus, bystander, channel, topic } = await start()
    await channel.assertQueue(`${topic}..g`, { durable: true })
    await refusal(subscribe(bus, topic), ConflictError, `${topic}..g`, 'autoCreate: false')
    await bystander.unharmed()
    // The cure that it names.
    const careful = await lab.connect({ autoCreate: false })
    await subscribe(careful, topic)
  })

  test('a queue with another argument', async () => {
    const { bus, bystander, channel, topic } = await start()
    const own = { 'x-queue-type': 'quorum', 'x-max-length': 10 }
    await channel.assertQueue(`${topic}..g`, { durable: true, arguments: own })
    await refusal(subscribe(bus, topic), ConflictError, `${topic}..g`, /x-(max-length|delivery)/)
    await bystander.unharmed()
  })

  test('a dead-letter queue of another type', async () => {
    const { bus, bystander, channel, topic } = await start()
    await channel.assertQueue(`${topic}..g..dead`, { durable: true })
    await refusal(subscribe(bus, topic), ConflictError, `${topic}..g..dead`)
    await bystander.unharmed()
  })

  test('a queue that belongs to one connection', async () => {
    const { bus, bystander, channel, topic } = await start()
    await channel.assertQueue(`${topic}..g`, { exclusive: true, durable: false })
    await refusal(subscribe(bus, topic), ConflictError, `${topic}..g`)
    await bystander.unharmed()
  })

  test('a queue that another program consumes exclusively', async () => {
    const { bus, bystander, channel, topic } = await start({ queueType: 'classic' })
    await bus.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
    await channel.consume(`${topic}..g`, () => {}, { exclusive: true })
    await refusal(subscribe(bus, topic), ConflictError, `${topic}..g`, 'exclusive')
    await bystander.unharmed()
  })

  test('another number of partitions, more or fewer', async () => {
    const { bus, bystander, topic } = await start()
    const owner = await lab.connect({ options: { partitions: 4 } })
    await subscribe(owner, topic, 'key')
    await refusal(subscribe(bus, topic, 'key'), ConflictError, `${topic}..g`, '4', '8')
    const fewer = await lab.connect({ options: { partitions: 2 } })
    await refusal(subscribe(fewer, topic, 'key'), ConflictError, '4', '2')
    await subscribe(owner, topic, 'key')
    await bystander.unharmed()
  })

  test('ordered and not, both ways', async () => {
    const { bus, bystander, topic } = await start()
    await subscribe(bus, topic, 'key', 'ordered')
    const asked = (bus: Bus) => subscribe(bus, topic, 'none', 'ordered')
    await refusal(asked(bus), ConflictError, "'ordered'", "order 'key', not 'none'", 'another')
    await subscribe(bus, topic, 'none', 'plain')
    const other = subscribe(bus, topic, 'key', 'plain')
    await refusal(other, ConflictError, "'plain'", "order 'none', not 'key'", 'another')
    const admin = bus.admin.createGroup(topic, 'plain', { order: 'key', from: 'latest' })
    await refusal(admin, ConflictError, "order 'none', not 'key'")
    await bystander.unharmed()
    const careful = await lab.connect({ autoCreate: false })
    await refusal(asked(careful), NotFoundError, `${topic}..ordered`)
  })

  test('an exchange of another type, for publish as well as subscribe', async () => {
    const { bus, bystander, channel, topic } = await start()
    await channel.assertExchange(topic, 'fanout', { durable: true })
    await refusal(subscribe(bus, topic), ConflictError, `'${topic}'`, 'type')
    await refusal(bus.publish(topic, 1), ConflictError, `'${topic}'`, 'type')
    await bystander.unharmed()
    const fitting = await lab.connect({ options: { exchangeType: 'fanout' } })
    await subscribe(fitting, topic)
    await fitting.publish(topic, 1)
  })

  test('an exchange that is not durable', async () => {
    const { bus, bystander, channel, topic } = await start()
    await channel.assertExchange(topic, 'topic', { durable: false })
    await refusal(bus.publish(topic, 1), ConflictError, `'${topic}'`, 'durable')
    await bystander.unharmed()
  })

  test('a direct exchange without routes for a group', async () => {
    const bus = await lab.connect({ options: { exchangeType: 'direct' } })
    await refusal(subscribe(bus, lab.unique('orders')), OptionError, 'routes', 'bindingKeys')
  })

  test('a naming function that throws, or gives no name', async () => {
    const broken = (topic: string) => {
      if (!topic.startsWith(bystanders)) throw new TypeError('no such tenant')
      return topic
    }
    const { bus, bystander, topic } = await start({ exchange: broken })
    await refusal(bus.publish(topic, 1), OptionError, "'exchange' threw: no such tenant")
    const delayed = bus.publish(topic, 1, { delay: 100 })
    await refusal(delayed, OptionError, "'exchange' threw: no such tenant")
    await refusal(subscribe(bus, topic), OptionError, "'exchange' threw: no such tenant")
    await bystander.unharmed()
    const bindingKeys = () => [1] as never
    const other = await lab.connect({ options: { bindingKeys, routingKey: () => 1 as never } })
    await refusal(subscribe(other, topic), OptionError, "'bindingKeys' gave [1]")
    await refusal(other.publish(topic, 1), OptionError, "'routingKey' gave 1")
  })
})
