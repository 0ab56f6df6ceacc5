import { text, topic as topicOf, UnsupportedError } from '@longshore/core'
import { expect, test } from 'vitest'
import { eventually } from '../brokers/support.js'
import { refusal } from './lab/errors.js'
import { type Lab, nativeOf, onServers } from './lab/lab.js'

/** Delays by hops through queues; that they survive restarts is the conformance kit's. */
await onServers('delays', (lab) => {
  times(lab)
  ways(lab)
  objects(lab)
})

const lost = 'longshore..delay..lost'
const unwanted = 'longshore..delay..unwanted'
const day = 24 * 3600 * 1000

function times(lab: Lab) {
  test('never early, and of the right order: 1 ms, 50 ms, 1 s', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const arrived = new Map<string, number>()
    const options = { group: 'g', concurrency: 100 }
    await bus.subscribe<string>(topic, options, (id) => void arrived.set(id, performance.now()))
    const sent: { id: string; delay: number; at: number }[] = []
    for (let round = 0; round < 10; round++) {
      for (const delay of [1, 50, 1000]) {
        const id = `${delay} ${round}`
        sent.push({ id, delay, at: performance.now() })
        await bus.publish(topic, id, { delay })
      }
    }
    await eventually(() => arrived.size === sent.length)
    for (const { id, delay, at } of sent) {
      const took = arrived.get(id)! - at
      expect(took, id).toBeGreaterThanOrEqual(delay)
      // Each hop costs a few milliseconds; what more there is, is the machine's.
      expect(took, id).toBeLessThan(1.5 * delay + 1000)
    }
    const shortest = (delay: number) =>
      Math.min(
        ...sent.filter((one) => one.delay === delay).map(({ id, at }) => arrived.get(id)! - at),
      )
    expect(shortest(1)).toBeLessThan(150)
    expect(shortest(50)).toBeLessThan(250)
    expect(shortest(1000)).toBeLessThan(1400)
  })

  test('a year is taken, and waits in the queue that it should; more is refused', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    await bus.publish(topic, 1, { delay: 365 * day })
    expect(await lab.count(`longshore..delay..${16 * 2 ** 30}ms`)).toBe(1)
    await bus.publish(topic, 2, { at: new Date(Date.now() + 200 * day) })
    expect(await lab.count(`longshore..delay..${16 * 2 ** 30}ms`)).toBe(2)
    await bus.publish(topic, 2, { delay: '1d' })
    // 86,400,000 ms are 5,400,000 steps of 16 ms, which begin with a bit of 2^22.
    expect(await lab.count(`longshore..delay..${16 * 2 ** 22}ms`)).toBe(1)
    const tooLong = bus.publish(topic, 3, { delay: 367 * day })
    await refusal(tooLong, UnsupportedError, String(366 * day))
  })

  test('a short delay is not behind longer ones, not even in the same queues', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const seen: string[] = []
    await bus.subscribe<string>(topic, { group: 'g' }, (payload) => void seen.push(payload))
    // In binary 1000 1111 and 1 0001: the long ones hop through all queues of the short one.
    const long = Array.from({ length: 100 }, () => ({ payload: 'long', delay: 0b10001111 * 16 }))
    await bus.publishBatch(topic, long)
    const longer = Array.from({ length: 100 }, () => ({ payload: 'longer', delay: '10m' as const }))
    await bus.publishBatch(topic, longer)
    const begun = performance.now()
    await bus.publish(topic, 'short', { delay: 0b10001 * 16 })
    await eventually(() => seen.length > 0)
    expect(seen[0]).toBe('short')
    expect(performance.now() - begun).toBeLessThan(0b10001111 * 16)
    await eventually(() => seen.length === 101)
  })
}

function ways(lab: Lab) {
  /** More than the broker forwards at a time. */
  const many = 100

  async function delayed(topic: string, payload: string, delay: number) {
    const bus = await lab.connect()
    const entries = Array.from({ length: many }, () => ({ payload, delay }))
    const outcomes = await bus.publishBatch(topicOf(topic, { codec: text() }), entries)
    expect(outcomes.filter(({ status }) => status !== 'confirmed')).toEqual([])
    return bus
  }

  /** Others’ messages come through the very same queues. */
  async function othersPass(delay: number) {
    const bus = await lab.connect()
    const topic = lab.unique('others')
    let seen = 0
    const retry = { base: delay, jitter: 0 }
    await bus.subscribe(topic, { group: 'g', retry }, (_, { attempt }) => {
      if (attempt === 1) throw new Error('later')
      seen++
    })
    await bus.publish(topic, 'a', { delay })
    await bus.publish(topic, 'b', { delay: 16 })
    await eventually(() => seen === 2, { within: 10_000 })
  }

  test('delayed messages that no group wants go nowhere, like others, and hold up nobody', async () => {
    const topic = lab.unique('nobody')
    const bus = await delayed(topic, 'for nobody', 200)
    await bus.subscribe(topic, { group: 'picky', routes: ['eu.#'] }, () => {
      throw new Error('it is not for me')
    })
    await delayed(topic, 'without route', 200)
    await othersPass(200)
    expect(await lab.count(lost)).toBe(0)
    expect(await lab.count(unwanted)).toBe(0)
  })

  test('a fanout exchange without groups: the same', async () => {
    const bus = await lab.connect({ options: { exchangeType: 'fanout' } })
    const topic = lab.unique('nobody')
    const entries = Array.from({ length: many }, (_, payload) => ({ payload, delay: 200 }))
    await bus.publishBatch(topic, entries)
    await othersPass(200)
    expect(await lab.count(lost)).toBe(0)
  })

  test('delayed messages whose topic or group is deleted meanwhile lie in a queue to be seen, and hold up nobody', async () => {
    const topic = lab.unique('doomed')
    const delay = 1500
    const bus = await delayed(topic, 'to a deleted topic', delay)
    await lab.channel((channel) => channel.deleteExchange(topic))
    const group = lab.unique('doomed')
    const retry = { attempts: 2, base: delay, jitter: 0 }
    const subscription = await bus.subscribe(
      group,
      { group: 'g', retry, concurrency: many },
      () => {
        throw new Error('later')
      },
    )
    let retried = 0
    bus.on('retried', () => retried++)
    for (let n = 0; n < many; n++) await bus.publish(group, 'to a deleted group')
    await eventually(() => retried >= many)
    await subscription.close()
    await bus.admin.deleteGroup(group, 'g')
    await othersPass(delay)
    await eventually(async () => (await lab.count(lost)) === 2 * many)
    await lab.channel(async (channel) => {
      const message = await channel.get(lost)
      expect(message && `${message.content}`).toBe('to a deleted topic')
    })
  })
}

function objects(lab: Lab) {
  const delayObjects = async (of: 'queues' | 'exchanges') =>
    (await lab.names(of)).filter((name) => name.startsWith('longshore..delay..')).sort()

  test('the number of queues is bounded, whatever topics, groups and delays there are', async () => {
    const bus = await lab.connect()
    for (let t = 0; t < 5; t++) {
      const topic = lab.unique('orders')
      await bus.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
      const entries = Array.from({ length: 100 }, (_, n) => ({
        payload: n,
        delay: 1.2 ** n + 5000,
      }))
      await bus.publishBatch(topic, entries)
    }
    await nativeOf(bus).createDelays()
    const levels = Array.from(
      { length: 32 },
      (_, level) => `longshore..delay..${16 * 2 ** level}ms`,
    )
    expect(await delayObjects('queues')).toEqual([...levels, lost, unwanted].sort())
    const exchanges = [...levels, lost, 'longshore..delay..out']
    // Beside them there is one for each destination, which is no queue.
    const sign = /\.\.to\.\.[0-9a-f]{16}$/
    const found = (await delayObjects('exchanges')).filter((name) => !sign.test(name))
    expect(found).toEqual(exchanges.sort())
  })

  test('several programs make them at the same time', async () => {
    const buses = await Promise.all(Array.from({ length: 3 }, () => lab.connect()))
    await Promise.all(buses.map((bus) => nativeOf(bus).createDelays()))
    await Promise.all(buses.map((bus) => nativeOf(bus).createDelays()))
  })

  test('delay queues and exchanges that somebody deletes are made again; nothing confirmed is lost', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const seen: string[] = []
    const retry = { base: 50, jitter: 0 }
    await bus.subscribe<string>(topic, { group: 'g', retry }, (payload, { attempt }) => {
      if (payload.startsWith('retry') && attempt === 1) throw new Error('later')
      seen.push(payload)
    })
    await bus.publish(topic, 'before', { delay: 50 })
    await eventually(() => seen.length === 1)
    for (const what of ['queues', 'exchanges'] as const) {
      const names = await delayObjects(what)
      await lab.channel(async (channel) => {
        for (const name of names) {
          if (what === 'queues') await channel.deleteQueue(name)
          else await channel.deleteExchange(name)
        }
      })
      await bus.publish(topic, `delayed ${what}`, { delay: 50 })
      await eventually(() => seen.includes(`delayed ${what}`), { within: 10_000 })
      await bus.publish(topic, `retry ${what}`)
      await eventually(() => seen.includes(`retry ${what}`), { within: 10_000 })
    }
  })
}
