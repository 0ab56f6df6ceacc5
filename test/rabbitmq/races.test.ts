// What the server may say in the very packet that says yes, and what may hold up others for ever.

import type { ConsumeContext } from '@longshore/core'
import { slotOf } from '@longshore/rabbitmq'
import { expect, test } from 'vitest'
import { eventually } from '../brokers/support.js'
import { cancelOf, connectionClose, type Frame, FrameProxy, is } from './lab/frames.js'
import { type Lab, onServers } from './lab/lab.js'

await onServers('races', (lab) => {
  inOnePacket(lab)
  waiting(lab)
})

/** Answers the first frame that fits, once it is armed. */
function once(fits: (frame: Frame) => boolean, answer: (frame: Frame) => Buffer | 'drop') {
  let armed = true
  const state = { done: false }
  const hook = (frame: Frame) => {
    if (!armed || !fits(frame)) return undefined
    armed = false
    state.done = true
    return answer(frame)
  }
  return { hook, state }
}

function inOnePacket(lab: Lab) {
  test('a connection that ends as it is opened is opened again', async () => {
    const proxy = await FrameProxy.of(lab)
    const bus = await lab.connect({ via: proxy })
    const topic = lab.unique('orders')
    const seen: number[] = []
    await bus.subscribe<number>(topic, { group: 'g' }, (n) => void seen.push(n))
    const { hook, state } = once(is.connectionOpenOk, () => connectionClose())
    proxy.hook = hook
    proxy.cut()
    await eventually(() => state.done)
    await bus.publish(topic, 1)
    await eventually(() => seen.includes(1))
    expect(bus.health().status).toBe('up')
  })

  test('a connection that ends as a channel is opened on it is opened again', async () => {
    const proxy = await FrameProxy.of(lab)
    const bus = await lab.connect({ via: proxy })
    const { hook, state } = once(is.channelOpenOk, () => connectionClose())
    proxy.hook = hook
    const topic = lab.unique('orders')
    const seen: number[] = []
    await bus.subscribe<number>(topic, { group: 'g' }, (n) => void seen.push(n))
    expect(state.done).toBe(true)
    await bus.publish(topic, 1)
    await eventually(() => seen.includes(1))
    await bus.admin.createTopic(lab.unique('orders'))
  })

  test('a consumer that is cancelled as it begins begins again', async () => {
    const proxy = await FrameProxy.of(lab)
    const bus = await lab.connect({ via: proxy })
    const { hook, state } = once(is.consumeOk, cancelOf)
    proxy.hook = hook
    const topic = lab.unique('orders')
    const seen: number[] = []
    await bus.subscribe<number>(topic, { group: 'g' }, (n) => void seen.push(n))
    expect(state.done).toBe(true)
    await bus.publish(topic, 1)
    await eventually(() => seen.includes(1))
  })
}

/** A key of this partition, other than those. */
function keyOf(partition: number, partitions: number, others: readonly string[] = []): string {
  for (let n = 0; ; n++) {
    const key = `key-${n}`
    if (Number(slotOf(key)) % partitions === partition && !others.includes(key)) return key
  }
}

const slowly = { retry: { base: '1h' } } as const

function waiting(lab: Lab) {
  test('a connection that dies while a channel is being closed holds up nobody', async () => {
    const proxy = await FrameProxy.of(lab)
    const bus = await lab.connect({ via: proxy })
    const topic = lab.unique('orders')
    await bus.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
    const { hook, state } = once(is.channelCloseOk, () => 'drop')
    proxy.hook = hook
    const counting = bus.deadLetters(topic, 'g').count()
    await eventually(() => state.done)
    proxy.cut()
    await counting.catch(() => {})
    expect(
      await eventually(() =>
        bus
          .deadLetters(topic, 'g')
          .count()
          .then((n) => n === 0),
      ),
    ).toBe(true)
  })

  test('two keys that wait for their retries hold up no other partition', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const bad = [keyOf(0, 8), keyOf(1, 8)]
    const good = keyOf(5, 8)
    const seen: number[] = []
    const options = { group: 'g', order: 'key', concurrency: 20, ...slowly } as const
    await bus.subscribe<number>(topic, options, (n, { message: { key } }) => {
      if (key !== undefined && bad.includes(key)) throw new Error('not now')
      seen.push(n)
    })
    for (const key of bad) {
      for (let n = 0; n < 40; n++) await bus.publish(topic, n, { key })
    }
    for (let n = 0; n < 10; n++) await bus.publish(topic, n, { key: good })
    await eventually(() => seen.length === 10)
    expect(seen).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  })

  test('a partition with a key that waits for its retry goes on when another member comes', async () => {
    const options = { partitions: 2 }
    const [first, second] = [await lab.connect({ options }), await lab.connect({ options })]
    const topic = lab.unique('orders')
    const bad = keyOf(0, 2)
    const good = keyOf(0, 2, [bad])
    const other = keyOf(1, 2)
    const seen: number[] = []
    const handler = (n: number, { message: { key } }: ConsumeContext<number>) => {
      if (key === bad) throw new Error('not now')
      if (key === good) seen.push(n)
    }
    const subscribing = { group: 'g', order: 'key', concurrency: 20, ...slowly } as const
    await first.subscribe<number>(topic, subscribing, handler)
    await first.publish(topic, 0, { key: bad })
    await second.subscribe<number>(topic, subscribing, handler)
    // Longer than it takes to find out that there are too many partitions here.
    const until = Date.now() + 6000
    let sent = 0
    await eventually(async () => {
      await first.publish(topic, sent, { key: good })
      await first.publish(topic, sent++, { key: other })
      return Date.now() > until
    })
    await eventually(() => seen.length === sent)
    expect(seen).toEqual(Array.from({ length: sent }, (_, n) => n))
  })

  test('the members of an ordered group share its partitions', async () => {
    const options = { partitions: 4 }
    const buses = [await lab.connect({ options }), await lab.connect({ options })]
    const topic = lab.unique('orders')
    const counts = [0, 0]
    const last = new Map<string, number>()
    const wrong: string[] = []
    for (const [member, bus] of buses.entries()) {
      const subscribing = { group: 'g', order: 'key', concurrency: 10 } as const
      await bus.subscribe<number>(topic, subscribing, (n, { message: { key = '' } }) => {
        counts[member]!++
        if ((last.get(key) ?? -1) >= n) wrong.push(`${key}: ${n} after ${last.get(key)}`)
        last.set(key, n)
      })
    }
    const keys = [0, 1, 2, 3].map((partition) => keyOf(partition, 4))
    let n = 0
    await eventually(async () => {
      await Promise.all(keys.map((key) => buses[0]!.publish(topic, n, { key })))
      n++
      return counts[1]! > 20
    })
    await eventually(() => counts[0]! + counts[1]! >= n * keys.length)
    expect(wrong).toEqual([])
  })
}
