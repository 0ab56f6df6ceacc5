import {
  binary,
  ConnectionError,
  HeaderError,
  NotFoundError,
  RetryLaterError,
  TooLargeError,
  topic as topicOf,
  UnsupportedError,
} from '@longshore/core'
import { expect, test } from 'vitest'
import { eventually } from '../brokers/support.js'
import { Bystander } from './lab/bystander.js'
import { refusal } from './lab/errors.js'
import { type Lab, onServers } from './lab/lab.js'

/** Messages that the broker, or its protocol, can't take. */
await onServers('messages', (lab) => {
  sizes(lab)
  headers(lab)
  options(lab)
})

const mebi = 1024 * 1024

function sizes(lab: Lab) {
  /** What `max_message_size` is by default. */
  const limit = lab.name === 'rabbitmq' ? 128 * mebi : 16 * mebi
  const bytes = (name: string) => topicOf<Uint8Array>(name, { codec: binary() })

  test('a body over the server’s limit is refused alone; what was in flight beside it arrives', async () => {
    const bus = await lab.connect({ options: { maxBytes: 256 * mebi } })
    const bystander = await Bystander.on(bus)
    const topic = bytes(lab.unique('files'))
    const seen = new Set<number>()
    await bus.subscribe(
      topic,
      { group: 'g', concurrency: 10 },
      (body) => void seen.add(body.length),
    )
    const sizes = [1, 2, 3, 4, 5, limit + 1, 6, 7, 8, 9]
    const outcomes = await bus.publishBatch(
      topic,
      sizes.map((size) => ({ payload: Buffer.alloc(size) })),
    )
    for (const [i, outcome] of outcomes.entries()) {
      if (i !== 5) expect(outcome.status).toBe('confirmed')
      else expect(outcome).toMatchObject({ status: 'failed', error: expect.any(TooLargeError) })
    }
    const { error } = outcomes[5] as { error: Error }
    expect(error.message).toContain(`the server takes ${limit} (max_message_size)`)
    expect(error.message).toContain(`maxBytes: ${limit}`)
    await eventually(() => seen.size === 9)
    await bystander.unharmed()
  })

  test('a body over the option maxBytes is refused before it is sent', async () => {
    const bus = await lab.connect({ options: { maxBytes: 1000 } })
    const bystander = await Bystander.on(bus)
    const topic = bytes(lab.unique('files'))
    await refusal(bus.publish(topic, Buffer.alloc(1001)), TooLargeError, '1001', '1000')
    await bus.publish(topic, Buffer.alloc(1000))
    expect(bystander.channels).toBe(0)
    await bystander.unharmed()
  })
}

function headers(lab: Lab) {
  test('a header name, or headers together, over what AMQP holds: refused alone', async () => {
    const bus = await lab.connect()
    const bystander = await Bystander.on(bus)
    const topic = lab.unique('orders')
    const seen: number[] = []
    await bus.subscribe<number>(topic, { group: 'g' }, (payload) => void seen.push(payload))
    const send = (payload: number, headers: Record<string, string>, delay = 0) =>
      bus.publish(topic, payload, { headers, delay })
    const tooMuch: Record<string, string>[] = [
      { [`x${'é'.repeat(128)}`]: 'a name of 257 bytes' },
      { ['n'.repeat(256)]: 'a name of 256' },
      { one: 'x'.repeat(65_536) },
      Object.fromEntries(Array.from({ length: 70 }, (_, n) => [`h${n}`, 'x'.repeat(1000)])),
    ]
    for (const headers of tooMuch) {
      for (const delay of [0, 50]) await refusal(send(1, headers, delay), HeaderError, '64 KiB')
    }
    await send(2, { ['n'.repeat(255)]: 'just fits' })
    await eventually(() => seen.includes(2))
    expect(seen).toEqual([2])
    expect(bystander.channels).toBeLessThan(5)
    await bystander.unharmed()
  })

  test('the largest headers that are taken go through retries and dead letters whole', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const seen: string[] = []
    const retry = { attempts: 2, base: 20, jitter: 0 }
    const message = 'wrong \u2028'.repeat(1000)
    await bus.subscribe<string>(
      topic,
      { group: 'g', retry },
      (_, { message: { headers }, attempt }) => {
        seen.push(`${attempt} ${headers.big?.length}`)
        throw new Error(message)
      },
    )
    // The largest that is taken: from far too large down in steps, so that no more than a step is left.
    let size = 70_000
    for (; size > 0; size -= 16) {
      try {
        await bus.publish(topic, size, {
          headers: { big: 'x'.repeat(size) },
          key: 'k'.repeat(1024),
        })
        break
      } catch (error) {
        expect(error).toBeInstanceOf(HeaderError)
      }
    }
    expect(size).toBeGreaterThan(60_000)
    const letters = bus.deadLetters(topic, 'g')
    await eventually(async () => (await letters.count()) === 1)
    expect(seen).toEqual([`1 ${size}`, `2 ${size}`])
    for await (const letter of letters.list()) {
      expect(letter.headers.big).toHaveLength(size)
      // What there is no room for is cut.
      const { errorMessage, ...failure } = letter.failure
      expect(message.startsWith(errorMessage) && errorMessage.length > 50).toBe(true)
      expect(failure).toMatchObject({ reason: 'exhausted', attempts: 2, topic, group: 'g' })
    }
    expect(await letters.redrive()).toBe(1)
    await eventually(() => seen.length === 4)
  })

  test('headers whose names mean something to the broker survive, and mean nothing to it', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const spied = lab.unique('spied')
    await lab.channel((channel) => channel.assertQueue(spied, { durable: true }))
    const headers = {
      CC: spied,
      BCC: spied,
      'x-death': 'no table',
      'x-delivery-count': '77',
      'x-acquired-count': 'seven',
      'x-first-death-queue': spied,
      'x-last-death-reason': 'none',
      'x-match': 'all',
      __proto__: 'no prototype',
      constructor: 'none',
      toString: 'none',
      '': undefined as never,
    }
    delete (headers as Record<string, unknown>)['']
    const own = Object.fromEntries(Object.entries(headers))
    Object.defineProperty(own, '__proto__', { value: 'text', enumerable: true })
    const seen: unknown[] = []
    const retry = { attempts: 2, base: 50 }
    await bus.subscribe(topic, { group: 'g', retry }, (_, { message, attempt, deliveries }) => {
      seen.push([attempt, deliveries, Object.entries(message.headers).sort()])
      throw new Error('again')
    })
    await bus.publish(topic, 1, { headers: own })
    await bus.publish(topic, 2, { headers: own, delay: 50 })
    const letters = bus.deadLetters(topic, 'g')
    await eventually(async () => (await letters.count()) === 2)
    const expected = Object.entries(own).sort()
    expect(expected).toContainEqual(['__proto__', 'text'])
    for (const one of seen as [number, number, unknown][]) {
      expect(one).toEqual([one[0], 1, expected])
    }
    expect(seen).toHaveLength(4)
    for await (const letter of letters.list()) {
      expect(Object.entries(letter.headers).sort()).toEqual(expected)
    }
    await letters.redrive()
    await eventually(() => seen.length >= 6)
    for (const one of seen.slice(4) as [number, number, unknown][]) expect(one[2]).toEqual(expected)
    expect(await lab.count(spied)).toBe(0)
  })
}

function options(lab: Lab) {
  test('mandatory: a topic without a group, or without one that wants it, is a NotFoundError', async () => {
    const bus = await lab.connect({ options: { mandatory: true } })
    const bystander = await Bystander.on(bus)
    const topic = lab.unique('orders')
    await refusal(
      bus.publish(topic, 1),
      NotFoundError,
      'reached no queue',
      'subscribe',
      'mandatory',
    )
    const seen: number[] = []
    await bus.subscribe<number>(topic, { group: 'g', routes: ['eu.#'] }, (n) => void seen.push(n))
    await refusal(bus.publish(topic, 2, { route: 'us' }), NotFoundError, "routing key 'us'")
    const routes = ['eu.a', 'us.a', 'eu.b', 'us.b', 'eu']
    const batch = routes.map((route, payload) => ({ payload, route }))
    const outcomes = await bus.publishBatch(topic, batch)
    expect(outcomes.map(({ status }) => status)).toEqual(
      routes.map((route) => (route.startsWith('eu') ? 'confirmed' : 'failed')),
    )
    await eventually(() => seen.length === 3)
    expect(seen).toEqual([0, 2, 4])
    expect(bystander.channels).toBeLessThan(5)
    await bystander.unharmed()
    const unasked = await lab.connect()
    await unasked.publish(lab.unique('nobody'), 1)
  })

  test('ttl and delay together are refused; a ttl of years is not', async () => {
    const bus = await lab.connect()
    const bystander = await Bystander.on(bus)
    const topic = lab.unique('orders')
    const seen: number[] = []
    await bus.subscribe<number>(topic, { group: 'g' }, (payload) => void seen.push(payload))
    const both = bus.publish(topic, 1, { ttl: '1m', delay: '1s' })
    await refusal(both, UnsupportedError, 'ttl', 'leave one of them out')
    await refusal(bus.publish(topic, 1, { ttl: '3651d' }), UnsupportedError, 'ten years')
    await bus.publish(topic, 2, { ttl: '3650d' })
    await bus.publish(topic, 3, { ttl: 0.1 + 60_000 })
    await eventually(() => seen.length === 2)
    await bystander.unharmed()
  })

  test('a retry for later than delays can be waits as long as they can', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const failures: Error[] = []
    bus.on('settle-failed', ({ error }) => failures.push(error))
    let retried = 0
    bus.on('retried', () => retried++)
    await bus.subscribe(topic, { group: 'g' }, () => {
      throw new RetryLaterError('4000d')
    })
    await bus.publish(topic, 1)
    await eventually(() => retried > 0 || failures.length > 2)
    expect(failures).toEqual([])
    expect(await lab.count(`longshore..delay..${16 * 2 ** 30}ms`)).toBe(1)
  })

  test('a content type that AMQP can not hold is refused alone', async () => {
    const bus = await lab.connect()
    const bystander = await Bystander.on(bus)
    const odd = { ...binary(), contentType: 'x'.repeat(256) }
    const topic = topicOf<Uint8Array>(lab.unique('files'), { codec: odd })
    await refusal(bus.publish(topic, Buffer.from('x')), HeaderError, 'contentType')
    await bystander.unharmed()
  })

  test('a route that leaves no room for a delay is refused alone', async () => {
    const routingKey = () => 'k'.repeat(255)
    const bus = await lab.connect({ options: { routingKey } })
    const bystander = await Bystander.on(bus)
    const topic = lab.unique('orders')
    await bus.publish(topic, 1)
    await refusal(bus.publish(topic, 1, { delay: 100 }), UnsupportedError, '255', 'shorter')
    await bystander.unharmed()
  })

  test('hosts that nobody listens on, or that say nothing, are told in time', async () => {
    const begun = Date.now()
    const nobody = lab.connect({
      via: { host: '127.0.0.1', port: 1 },
      options: { hosts: ['127.0.0.1:2', 'no-such-host.invalid:5672'] },
      connectTimeout: 700,
    })
    const hosts = ['127.0.0.1:1', '127.0.0.1:2', 'no-such-host.invalid:5672']
    await refusal(nobody, ConnectionError, ...hosts, 'check that it runs')
    const proxy = await lab.proxy()
    proxy.swallow()
    const silent = lab.connect({ via: proxy, connectTimeout: 700 })
    await refusal(silent, ConnectionError, `127.0.0.1:${proxy.port}`, '700 ms')
    expect(Date.now() - begun).toBeLessThan(5000)
  })
}
