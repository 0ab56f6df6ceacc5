import { expect, test } from 'vitest'
import { eventually } from '../brokers/support.js'
import { gate } from './lab/gate.js'
import { type Lab, onServers } from './lab/lab.js'

/** How often a message may come back: since 4.0 the broker drops what was returned 20 times, unless it is told otherwise. */
await onServers('delivery-limit', (lab) => {
  test.each(['returned', 'lost with its channel'] as const)(
    'a message that was %s more than 20 times is still there',
    async (how) => {
      const topic = lab.unique('orders')
      const bus = await lab.connect()
      await bus.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
      await bus.publish(topic, 'often', { id: 'often' })
      await fail(lab, `${topic}..g`, how, 30)
      const seen: unknown[] = []
      const retry = { maxDeliveries: 1000 }
      await bus.subscribe(topic, { group: 'g', retry }, (payload, { attempt, deliveries }) => {
        seen.push([payload, attempt, deliveries > 20])
      })
      await eventually(() => seen.length > 0)
      expect(seen).toEqual([['often', 1, true]])
    },
  )

  test('one that ends its consumers goes to the dead letters after maxDeliveries, whole', async () => {
    const topic = lab.unique('orders')
    const bus = await lab.connect()
    await bus.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
    await bus.publish(topic, 'poison', { id: 'poison', headers: { tenant: 'acme' } })
    const queue = `${topic}..g`
    await fail(lab, queue, 'lost with its channel', 4)
    const seen: string[] = []
    const handle = (payload: string) => void seen.push(payload)
    const strict = await lab.connect()
    const options = { group: 'g', retry: { maxDeliveries: 4 } }
    const subscription = await strict.subscribe<string>(topic, options, handle)
    const letters = bus.deadLetters(topic, 'g')
    await eventually(async () => (await letters.count()) === 1)
    const letter = await letters.get('poison')
    expect(letter).toMatchObject({
      headers: { tenant: 'acme' },
      failure: { reason: 'delivery-limit', attempts: 1, group: 'g' },
    })
    expect(letter?.failure.errorMessage).toContain('maxDeliveries is 4')
    // Redriven, it begins from nothing.
    expect(await letters.redrive()).toBe(1)
    await eventually(() => seen.length === 1)
    await bus.publish(topic, 'fine')
    await eventually(() => seen.includes('fine'))
    expect(subscription.state).toBe('running')
  })

  test('with the default of 20, one that came 20 times still reaches the handler, and counts anew with each attempt', async () => {
    const topic = lab.unique('orders')
    const bus = await lab.connect()
    await bus.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
    await bus.publish(topic, 'often')
    await fail(lab, `${topic}..g`, 'lost with its channel', 19)
    const seen: [number, number][] = []
    const retry = { attempts: 3, base: 20, jitter: 0 }
    const at = await bus.subscribe(topic, { group: 'g', retry }, (_, { attempt, deliveries }) => {
      seen.push([attempt, deliveries])
      throw new Error('again')
    })
    await eventually(async () => (await bus.deadLetters(topic, 'g').count()) === 1)
    expect(seen).toEqual([
      [1, 20],
      [2, 1],
      [3, 1],
    ])
    expect(at.state).toBe('running')
  })

  test.each(['none', 'key'] as const)(
    'what lost connections give back more often than maxDeliveries goes on: order %s',
    async (order) => {
      const topic = lab.unique('orders')
      const proxy = await lab.proxy()
      const bus = await lab.connect({ via: proxy })
      let hold = gate()
      const [seen, done]: string[][] = [[], []]
      let revoked = 0
      bus.on('revoked', () => revoked++)
      // One is in the handler's hands; of the others the driver holds some, which the core has not seen.
      const options = { group: 'g', order, prefetch: 1, retry: { maxDeliveries: 3 } }
      await bus.subscribe<string>(topic, options, async (payload, { signal }) => {
        seen!.push(payload)
        await hold.opened
        if (!signal.aborted) done!.push(payload)
      })
      const all = ['a', 'b', 'c', 'd', 'e']
      for (const payload of all) await bus.publish(topic, payload, { key: 'k' })
      for (let cuts = 0; cuts < 5; cuts++) {
        await eventually(() => seen!.length > cuts)
        proxy.cut()
        await eventually(() => revoked > cuts)
        hold.open()
        hold = gate()
      }
      hold.open()
      await eventually(async () => done!.length === 5 || (await lab.count(`${topic}..g..dead`)) > 0)
      expect(await lab.count(`${topic}..g..dead`)).toBe(0)
      expect(done).toEqual(all)
    },
  )

  test('what pauses hand back more than 20 times is neither dropped nor dead-lettered', async () => {
    const topic = lab.unique('orders')
    const bus = await lab.connect()
    const [started, hold] = [gate(), gate()]
    const seen: string[] = []
    let returned = 0
    bus.on('returned', ({ count }) => {
      returned += count
    })
    const subscription = await bus.subscribe<string>(topic, { group: 'g' }, async (payload) => {
      seen.push(payload)
      started.open()
      await hold.opened
    })
    // One is in the handler's hands, the other waits behind it and is handed back with each pause.
    await bus.publish(topic, 'first')
    await started.opened
    await bus.publish(topic, 'second')
    for (let round = 1; round <= 22; round++) {
      await eventually(async () => (await lab.count(`${topic}..g`)) === 0)
      subscription.pause()
      await eventually(() => returned >= round)
      await eventually(async () => (await lab.count(`${topic}..g`)) === 1)
      subscription.resume()
    }
    hold.open()
    await eventually(() => seen.length === 2)
    expect(seen).toEqual(['first', 'second'])
    expect(await bus.deadLetters(topic, 'g').count()).toBe(0)
  })
})

/** Takes the one message of a queue so many times, and never acknowledges it. */
async function fail(lab: Lab, queue: string, how: string, times: number): Promise<void> {
  const connection = await lab.foreign()
  for (let n = 0; n < times; n++) {
    const channel = await connection.createChannel()
    // It may be on its way back still.
    const message = await eventually(() => channel.get(queue))
    if (how === 'returned') channel.nack(message, false, true)
    await channel.close()
  }
  await eventually(async () => (await lab.count(queue)) === 1)
}
