import { NotFoundError, PermanentError, UnsupportedError } from '@longshore/core'
import { type RabbitmqOptions, slotOf } from '@longshore/rabbitmq'
import type { ConfirmChannel, GetMessage, Options } from 'amqplib'
import { expect, test } from 'vitest'
import { eventually } from '../brokers/support.js'
import { refusal } from './lab/errors.js'
import { type Lab, nativeOf, onServers } from './lab/lab.js'

/** Side by side with programs that know nothing of Longshore. */
await onServers('interop', (lab) => {
  topologies(lab)
  messages(lab)
  classic(lab)
})

/** Publishes as another program would. */
function foreign(
  lab: Lab,
  exchange: string,
  key: string,
  body: string,
  more: Options.Publish = {},
) {
  return lab.channel(async (channel) => {
    channel.publish(exchange, key, Buffer.from(body), { contentType: 'text/plain', ...more })
    await channel.waitForConfirms()
  })
}

function topologies(lab: Lab) {
  interface Existing {
    readonly what: string
    readonly options: RabbitmqOptions
    declare(channel: ConfirmChannel, name: string): Promise<unknown>
  }

  const named = {
    queue: (topic: string, group: string) => `q.${topic}.${group}`,
    deadLetterQueue: (topic: string, group: string) => `q.${topic}.${group}.failed`,
  }
  const queues = async (channel: ConfirmChannel, name: string) => {
    await channel.assertQueue(`q.${name}.g`, { durable: true })
    await channel.assertQueue(`q.${name}.g.failed`, { durable: true })
  }
  const existing: Existing[] = [
    {
      what: 'a direct exchange with one key',
      options: {
        ...named,
        exchange: (topic) => `x.${topic}`,
        exchangeType: 'direct',
        routingKey: (_, route) => route ?? 'all',
      },
      async declare(channel, name) {
        await channel.assertExchange(`x.${name}`, 'direct', { durable: true })
        await queues(channel, name)
        await channel.bindQueue(`q.${name}.g`, `x.${name}`, 'all')
      },
    },
    {
      what: 'a fanout exchange that is not durable',
      options: { ...named, exchange: (topic) => `x.${topic}`, exchangeType: 'fanout' },
      async declare(channel, name) {
        await channel.assertExchange(`x.${name}`, 'fanout', { durable: false })
        await queues(channel, name)
        await channel.bindQueue(`q.${name}.g`, `x.${name}`, '')
      },
    },
    {
      what: 'a topic exchange that several topics share',
      options: {
        ...named,
        exchange: () => 'events',
        routingKey: ({ topic }, route) => `${topic}.${route ?? 'none'}`,
        bindingKeys: (topic) => [`${topic}.*`],
      },
      async declare(channel, name) {
        await channel.assertExchange('events', 'topic', { durable: true })
        await queues(channel, name)
        await channel.bindQueue(`q.${name}.g`, 'events', `${name}.*`)
      },
    },
    {
      what: 'the default exchange',
      options: { ...named, exchange: () => '', routingKey: ({ topic }) => `q.${topic}.g` },
      declare: queues,
    },
  ]

  test.each(existing.map((each) => [each.what, each] as const))(
    '%s: all works without creating anything, and without permission to',
    async (what, { options, declare }) => {
      const topic = lab.unique('orders')
      await lab.channel((channel) => declare(channel, topic))
      const owner = await lab.connect({ options })
      await nativeOf(owner).createDelays([{ topic, group: 'g' }])
      const login = await lab.limited({ configure: '^$' })
      const bus = await lab.connect({ login, options, autoCreate: false })
      const seen: string[] = []
      const retry = { attempts: 3, base: 50, jitter: 0 }
      await bus.subscribe<string>(topic, { group: 'g', retry }, (payload, { attempt }) => {
        seen.push(`${payload} ${attempt}`)
        if (payload === 'again' && attempt === 1) throw new Error('again')
        if (payload === 'never') throw new PermanentError('never')
      })
      await bus.publish(topic, 'at once')
      await bus.publish(topic, 'again')
      await bus.publish(topic, 'never')
      const expected = ['at once 1', 'again 1', 'again 2', 'never 1']
      if (what.includes('direct')) {
        await refusal(bus.publish(topic, 'x', { delay: 50 }), UnsupportedError, 'delay')
      } else {
        await bus.publish(topic, 'later', { delay: 50 })
        expected.push('later 1')
      }
      await eventually(() => seen.length >= expected.length)
      expect(seen.toSorted()).toEqual(expected.toSorted())
      const letters = bus.deadLetters(topic, 'g')
      await eventually(async () => (await letters.count()) === 1)
      expect(await lab.count(`q.${topic}.g.failed`)).toBe(1)
      expect(await letters.redrive()).toBe(1)
      await eventually(() => seen.filter((one) => one === 'never 1').length === 2)
      const { ready, dead } = await bus.admin.stats(topic, 'g')
      expect(ready + dead).toBeLessThanOrEqual(1)
      expect(await lab.count('longshore..delay..lost')).toBe(0)
      const missing = bus.subscribe(topic, { group: 'nobody' }, () => {})
      await refusal(missing, NotFoundError, `q.${topic}.nobody`)
    },
  )

  test.each(['direct', 'fanout'] as const)(
    'a %s exchange that the driver makes: groups, retries and dead letters',
    async (exchangeType) => {
      const bus = await lab.connect({ options: { exchangeType } })
      const topic = lab.unique('orders')
      const seen: string[] = []
      const routes = exchangeType === 'direct' ? ['eu', 'us'] : undefined
      const options = { retry: { base: 50 }, ...(routes && { routes }) }
      for (const group of ['one', 'two']) {
        await bus.subscribe<string>(topic, { group, ...options }, (payload, { attempt }) => {
          seen.push(`${group} ${payload} ${attempt}`)
          if (attempt === 1) throw new Error('again')
        })
      }
      const order = { group: 'ordered', order: 'key', ...options } as const
      await bus.subscribe<string>(topic, order, (payload) => void seen.push(`ordered ${payload} 1`))
      const send = (payload: string, route: string) =>
        bus.publish(topic, payload, { key: 'k', ...(routes && { route }) })
      await send('a', 'eu')
      await send('b', 'us')
      await eventually(() => seen.length >= 10)
      const expected = ['a', 'b'].flatMap((one) =>
        ['one', 'two'].flatMap((group) => [`${group} ${one} 1`, `${group} ${one} 2`]),
      )
      expect(seen.toSorted()).toEqual([...expected, 'ordered a 1', 'ordered b 1'].toSorted())
      if (exchangeType === 'fanout') {
        await refusal(bus.publish(topic, 'c', { route: 'eu' }), UnsupportedError, 'route')
        await bus.publish(topic, 'd', { delay: 50 })
        await eventually(() => seen.includes('two d 2') && seen.includes('ordered d 1'))
      } else {
        await bus.publish(topic, 'nobody', { route: 'asia' })
      }
    },
  )

  test('routes with wildcards choose delayed messages the same, and retries come back whatever they are', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const seen: Record<string, string[]> = { eu: [], paid: [], all: [], ordered: [] }
    const groups = { eu: ['eu.#'], paid: ['*.paid'], all: undefined, ordered: ['eu.*', 'us.#'] }
    for (const [group, routes] of Object.entries(groups)) {
      const order = group === 'ordered' ? 'key' : 'none'
      const options = { group, order, retry: { base: 30 }, ...(routes && { routes }) } as const
      await bus.subscribe<string>(topic, options, (payload, { attempt }) => {
        if (attempt === 1 && payload.endsWith('late')) throw new Error('again')
        seen[group]!.push(payload)
      })
    }
    const routes = ['eu', 'eu.paid', 'eu.paid.twice', 'us.paid', 'us.open', 'asia', undefined]
    for (const route of routes) {
      const own = { key: 'k', ...(route && { route }) }
      await bus.publish(topic, `${route}`, own)
      await bus.publish(topic, `${route} late`, { ...own, delay: 50 })
    }
    const both = (...all: string[]) => all.flatMap((one) => [one, `${one} late`]).toSorted()
    const expected = {
      eu: both('eu', 'eu.paid', 'eu.paid.twice'),
      paid: both('eu.paid', 'us.paid'),
      all: both(...routes.map(String)),
      ordered: both('eu.paid', 'us.paid', 'us.open'),
    }
    const sorted = () =>
      Object.fromEntries(Object.entries(seen).map(([group, all]) => [group, all.toSorted()]))
    await eventually(() =>
      Object.entries(expected).every(([g, all]) => seen[g]!.length >= all.length),
    )
    expect(sorted()).toEqual(expected)
  })
}

function messages(lab: Lab) {
  test('a foreign message: properties, typed headers, and no id', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const got: { headers: Record<string, string>; [name: string]: unknown }[] = []
    await bus.subscribe(topic, { group: 'g', retry: { attempts: 2, base: 20 } }, (payload, ctx) => {
      const { id, key, headers, timestamp, correlationId, contentType } = ctx.message
      got.push({ payload, id, key, headers, timestamp, correlationId, contentType })
      throw new Error('again, to see what is kept')
    })
    const headers = {
      text: 'plain',
      count: 42,
      large: 2 ** 40,
      ratio: 0.5,
      yes: true,
      nothing: null,
      bytes: Buffer.from('raw'),
      list: [1, 'two', [3]],
      table: { deep: { er: 'x' } },
      at: { '!': 'timestamp', value: 1_700_000_000 },
      'x-death': [{ count: 3, reason: 'expired', queue: 'elsewhere' }],
    }
    const properties = {
      contentType: 'application/json',
      correlationId: 'corr',
      replyTo: 'answers',
      type: 'order.placed',
      appId: 'legacy',
      timestamp: 1_700_000_000,
      headers,
    }
    await foreign(lab, topic, 'any.key', '{"n":1}', properties)
    const letters = bus.deadLetters(topic, 'g')
    await eventually(async () => (await letters.count()) === 1)
    expect(got).toHaveLength(2)
    for (const one of got) {
      expect(one).toEqual({
        payload: { n: 1 },
        id: got[0]!.id,
        key: undefined,
        timestamp: 1_700_000_000_000,
        correlationId: 'corr',
        contentType: 'application/json',
        headers: {
          text: 'plain',
          count: '42',
          large: String(2 ** 40),
          ratio: '0.5',
          yes: 'true',
          nothing: 'null',
          bytes: 'raw',
          list: '[1,"two",[3]]',
          table: '{"deep":{"er":"x"}}',
          at: '{"!":"timestamp","value":1700000000}',
        },
      })
    }
    // The copy in the dead letters has all that came, with its types.
    const dead = (await lab.channel((channel) => channel.get(`${topic}..g..dead`))) as GetMessage
    const { text, count, ratio, bytes, list, table, at } = dead.properties.headers!
    const expected = { text, count, ratio, bytes, list, table, at }
    expect({ ...headers, ...expected }).toEqual(headers)
    expect(dead.properties).toMatchObject({
      messageId: got[0]!.id,
      correlationId: 'corr',
      replyTo: 'answers',
      type: 'order.placed',
      appId: 'legacy',
      timestamp: 1_700_000_000,
    })
  })

  test('a foreign consumer gets plain messages, and a foreign dead letter can be redriven', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const mine = lab.unique('foreign')
    await bus.admin.createTopic(topic)
    const got: GetMessage[] = []
    const channel = await (await lab.foreign()).createChannel()
    await channel.assertQueue(mine, { exclusive: true })
    await channel.bindQueue(mine, topic, 'eu.#')
    await channel.consume(mine, (message) => void got.push(message as never), { noAck: true })
    const options = { key: 'c7', headers: { tenant: 'acme' }, route: 'eu.paid', id: 'one' }
    await bus.publish(topic, { total: 1 }, { ...options, ttl: '1h', correlationId: 'corr' })
    await eventually(() => got.length === 1)
    const { content, fields, properties } = got[0]!
    expect(`${content}`).toBe('{"total":1}')
    expect(fields).toMatchObject({ exchange: topic, routingKey: 'eu.paid', redelivered: false })
    expect(properties).toMatchObject({
      messageId: 'one',
      contentType: 'application/json',
      correlationId: 'corr',
      deliveryMode: 2,
      expiration: '3600000',
      headers: { tenant: 'acme', 'longshore-key': 'c7', 'longshore-slot': slotOf('c7') },
    })
    const seen: unknown[] = []
    await bus.subscribe(topic, { group: 'g' }, (payload) => void seen.push(payload))
    await foreign(lab, '', `${topic}..g..dead`, '"by hand"')
    const letters = bus.deadLetters(topic, 'g')
    await eventually(async () => (await letters.count()) === 1)
    for await (const { failure } of letters.list()) {
      expect(failure).toMatchObject({ reason: 'requested', group: 'g', attempts: 0 })
    }
    expect(await letters.redrive()).toBe(1)
    await eventually(() => seen.includes('by hand'))
  })

  test('foreign messages without a key reach an ordered group, in order; with slot and key they keep their own', async () => {
    const bus = await lab.connect()
    const other = await lab.connect()
    const topic = lab.unique('orders')
    const seen: string[] = []
    const running = new Map<string, number>()
    const options = { group: 'o', order: 'key', concurrency: 20 } as const
    for (const member of [bus, other]) {
      await member.subscribe<number>(topic, options, async (n, { message }) => {
        const key = message.key ?? 'none'
        // At most one of a key at a time, in whichever member.
        expect(running.get(key) ?? 0).toBe(0)
        running.set(key, 1)
        await new Promise((resolve) => setImmediate(resolve))
        running.set(key, 0)
        seen.push(`${key} ${n}`)
      })
    }
    const keys = Array.from({ length: 10 }, (_, k) => `key ${k}`)
    await lab.channel(async (channel) => {
      for (let n = 0; n < 30; n++) {
        const body = Buffer.from(String(n))
        channel.publish(topic, '', body)
        for (const key of keys) {
          const headers = { 'longshore-key': key, 'longshore-slot': slotOf(key) }
          channel.publish(topic, 'some.key', body, { headers })
        }
      }
      await channel.waitForConfirms()
    })
    await eventually(() => seen.length >= 330)
    expect(seen).toHaveLength(330)
    for (const key of keys) {
      const own = seen.filter((one) => one.startsWith(`${key} `))
      expect(own).toEqual(Array.from({ length: 30 }, (_, n) => `${key} ${n}`))
    }
    expect(new Set(seen.filter((one) => one.startsWith('none'))).size).toBe(30)
  })

  test('native() gives connections that work, and channels on them disturb nobody', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const seen: string[] = []
    await bus.subscribe<string>(topic, { group: 'g' }, (payload) => void seen.push(payload))
    const { publishing, consuming } = nativeOf(bus)
    const channel = await publishing!.createConfirmChannel()
    channel.publish(topic, '', Buffer.from('"native"'), { contentType: 'application/json' })
    await channel.waitForConfirms()
    await eventually(() => seen.includes('native'))
    const reader = await consuming!.createChannel()
    reader.on('error', () => {})
    await expect(reader.checkQueue('nowhere')).rejects.toThrow('NOT_FOUND')
    await channel.close()
    await bus.publish(topic, 'after')
    await eventually(() => seen.includes('after'))
  })

  test('a message whose ttl is over before it is delivered is dropped, another is not', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const seen: string[] = []
    const take = (payload: string) => void seen.push(payload)
    await bus.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
    await bus.publish(topic, 'short', { ttl: 30 })
    await bus.publish(topic, 'long', { ttl: '1h' })
    await bus.publish(topic, 'for ever')
    await eventually(async () => (await lab.count(`${topic}..g`)) === 2)
    await bus.subscribe<string>(topic, { group: 'g' }, take)
    await eventually(() => seen.length === 2)
    expect(seen).toEqual(['long', 'for ever'])
  })
}

function classic(lab: Lab) {
  test('classic queues with priorities: higher first, equal ones in order', async () => {
    const bus = await lab.connect({ options: { queueType: 'classic', priorities: 10 } })
    expect(bus.capabilities).toMatchObject({ priority: 10, deliveryCount: false })
    const topic = lab.unique('orders')
    await bus.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
    const given = [3, 9, undefined, 0, 5, 9, 3, 1, undefined, 5]
    for (const [n, priority] of given.entries()) {
      await bus.publish(topic, n, priority === undefined ? {} : { priority })
    }
    const seen: number[] = []
    const options = { group: 'g', prefetch: 1 }
    await bus.subscribe<number>(topic, options, (n) => void seen.push(n))
    await eventually(() => seen.length === given.length)
    const order = [...given.entries()].sort(([a, x = 0], [b, y = 0]) => y - x || a - b)
    expect(seen).toEqual(order.map(([n]) => n))
    const retried: string[] = []
    const other = lab.unique('orders')
    await bus.subscribe<string>(other, { group: 'g', retry: { base: 20 } }, (payload, ctx) => {
      retried.push(`${payload} ${ctx.attempt}`)
      if (ctx.attempt === 1) throw new Error('again')
    })
    await bus.publish(other, 'x', { priority: 9 })
    await eventually(() => retried.length === 2)
  })

  test('classic queues give back what a lost consumer held, in order', async () => {
    const bus = await lab.connect({ options: { queueType: 'classic' } })
    const topic = lab.unique('orders')
    const held: number[] = []
    const proxy = await lab.proxy()
    const doomed = await lab.connect({ options: { queueType: 'classic' }, via: proxy })
    const options = { group: 'g', concurrency: 10 }
    await doomed.subscribe<number>(topic, options, async (n, { signal }) => {
      held.push(n)
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
    })
    for (let n = 0; n < 10; n++) await bus.publish(topic, n)
    await eventually(() => held.length === 10)
    proxy.refuse()
    proxy.cut()
    const seen: number[] = []
    await bus.subscribe<number>(topic, { group: 'g' }, (n, { deliveries }) => {
      expect(deliveries).toBe(1)
      seen.push(n)
    })
    await eventually(() => seen.length === 10)
    expect(seen).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  })
}
