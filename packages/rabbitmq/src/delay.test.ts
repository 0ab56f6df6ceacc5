import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Delays, longestDelay, stepsOf } from './delay.js'
import type { Topology } from './topology.js'

const stepMs = 16

test('a delay is never shortened, and grows by at most a sixteenth or one step', () => {
  fc.assert(
    fc.property(fc.double({ min: 0.001, max: longestDelay, noNaN: true }), (ms) => {
      const got = stepsOf(ms) * stepMs
      expect(got).toBeGreaterThanOrEqual(ms)
      expect(got).toBeLessThanOrEqual(ms + Math.max(stepMs, stepMs + ms / 16))
    }),
  )
})

test('a delay takes at most five hops', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: longestDelay }), (ms) => {
      const bits = stepsOf(ms).toString(2)
      expect(bits.length).toBeLessThanOrEqual(32)
      expect(bits.replaceAll('0', '').length).toBeLessThanOrEqual(5)
    }),
  )
})

const delays = new Delays({ epoch: 0 } as Topology, { autoCreate: true, exchangeType: 'topic' })
const queue = { kind: 'queue', name: 'orders..billing' } as const

test('the routing key spells the delay in binary, begins at its highest level and fits into AMQP', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: longestDelay }), (ms) => {
      const { exchange, routingKey } = delays.route(queue, ms, 'x'.repeat(100))
      const words = routingKey.split('.')
      const steps = Number.parseInt(words.slice(0, 32).join(''), 2)
      expect(steps).toBe(stepsOf(ms))
      expect(exchange).toBe(`longshore..delay..${2 ** Math.floor(Math.log2(steps)) * stepMs}ms`)
      expect(Buffer.byteLength(routingKey)).toBeLessThanOrEqual(255)
    }),
  )
})

test('queues and exchanges of one name are different destinations', () => {
  const exchange = { kind: 'exchange', name: queue.name } as const
  expect(delays.route(queue, 100, '').routingKey).not.toBe(
    delays.route(exchange, 100, '').routingKey,
  )
})

test('a routing key that leaves no room for the delay is refused', () => {
  expect(() => delays.route(queue, 100, 'x'.repeat(200))).toThrow(/255/)
})
