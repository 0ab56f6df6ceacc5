import type { Channel, Message } from 'amqplib'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Acks } from './acks.js'

/** A broker that knows what is outstanding, and refuses what RabbitMQ refuses: a tag that isn't. */
class Broker {
  readonly outstanding = new Set<number>()
  readonly acked: number[] = []
  readonly requeued: number[] = []
  frames = 0

  readonly channel = {
    ack: ({ fields: { deliveryTag } }: Message, upTo = false) => {
      this.frames++
      if (!this.outstanding.has(deliveryTag)) throw new Error(`unknown delivery tag ${deliveryTag}`)
      for (const tag of upTo
        ? [...this.outstanding].filter((t) => t <= deliveryTag)
        : [deliveryTag]) {
        this.outstanding.delete(tag)
        this.acked.push(tag)
      }
    },
    nack: ({ fields: { deliveryTag } }: Message) => {
      if (!this.outstanding.delete(deliveryTag)) throw new Error(`unknown tag ${deliveryTag}`)
      this.requeued.push(deliveryTag)
    },
  } as unknown as Channel

  readonly acks = new Acks(this.channel)
  #tag = 0

  deliver(): number {
    this.outstanding.add(++this.#tag)
    this.acks.opened()
    return this.#tag
  }
}

test('what is settled in order leaves as one frame', () => {
  const broker = new Broker()
  for (let n = 0; n < 50; n++) broker.deliver()
  for (let tag = 1; tag <= 40; tag++) broker.acks.ack(tag)
  broker.acks.flush()
  expect(broker.acked).toHaveLength(40)
  expect(broker.frames).toBe(1)
})

test('exactly what was acked is acked, in any order of settling, requeueing and flushing', () => {
  const step = fc.record({
    what: fc.constantFrom('deliver', 'ack', 'requeue', 'flush'),
    at: fc.nat(),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const broker = new Broker()
      const held: number[] = []
      const acked: number[] = []
      const requeued: number[] = []
      for (const { what, at } of steps) {
        if (what === 'deliver') held.push(broker.deliver())
        else if (what === 'flush') broker.acks.flush()
        else if (held.length > 0) {
          const [tag] = held.splice(at % held.length, 1) as [number]
          if (what === 'ack') {
            broker.acks.ack(tag)
            acked.push(tag)
          } else {
            broker.acks.requeue(tag)
            requeued.push(tag)
          }
        }
      }
      broker.acks.flush()
      const sorted = (tags: readonly number[]) => [...tags].sort((a, b) => a - b)
      expect(sorted(broker.acked)).toEqual(sorted(acked))
      expect(sorted(broker.requeued)).toEqual(sorted(requeued))
      expect([...broker.outstanding]).toEqual(sorted(held))
    }),
  )
})
