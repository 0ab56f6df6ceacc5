import { describe, expect, it } from 'vitest'
import { createTestBus } from './testing/index.js'
import { topic } from './topic.js'

const Orders = topic<number>('orders', { key: () => 'k' })

describe('bus.circuits', () => {
  for (const partitions of [0, 8]) {
    it(`closes and redrives in one step: parked ones come before what waits (partitions: ${partitions})`, async () => {
      await using bus = await createTestBus({ memory: { partitions } })
      let broken = true
      const seen: number[] = []
      const park = {
        group: 'g',
        order: 'key',
        onKeyFailure: 'park',
        retry: { attempts: 1 },
      } as const
      const subscription = await bus.subscribe(Orders, park, (n) => {
        if (broken) throw new Error('no')
        seen.push(n)
      })
      for (const n of [1, 2, 3]) await bus.publish(Orders, n)
      await bus.deadLettered({ count: 3 })
      expect(await bus.circuits(Orders, 'g').list()).toMatchObject([{ key: 'k' }])
      broken = false
      subscription.pause()
      await bus.publish(Orders, 4)
      subscription.resume()
      expect(await bus.circuits(Orders, 'g').close('k', { redrive: true })).toBe(true)
      await bus.handled({ count: 4 })
      expect(seen).toEqual([1, 2, 3, 4])
      expect(await bus.circuits(Orders, 'g').close('k')).toBe(false)
    })
  }
})
