import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Heap } from './heap.js'

describe('Heap', () => {
  it('gives what it holds in order, through any mix of push, pop and remove', () => {
    const step = fc.oneof(
      fc.record({ push: fc.integer({ min: 0, max: 50 }) }),
      fc.constant({ pop: true as const }),
      fc.record({ remove: fc.integer({ min: 1, max: 7 }) }),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200, size: 'max' }), (steps) => {
        const heap = new Heap<number>((a, b) => a < b)
        let model: number[] = []
        for (const each of steps) {
          if ('push' in each) {
            heap.push(each.push)
            model = [...model, each.push].sort((a, b) => a - b)
          } else if ('pop' in each) {
            expect(heap.pop()).toBe(model.shift())
          } else {
            const removed = heap.remove((n) => n % each.remove === 0)
            expect([...removed].sort((a, b) => a - b)).toEqual(
              model.filter((n) => n % each.remove === 0),
            )
            model = model.filter((n) => n % each.remove !== 0)
          }
          expect(heap.size).toBe(model.length)
          expect(heap.peek()).toBe(model[0])
          expect([...heap].sort((a, b) => a - b)).toEqual(model)
        }
        for (const expected of model) expect(heap.pop()).toBe(expected)
        expect(heap.pop()).toBeUndefined()
      }),
    )
  })
})
