import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Deque } from './deque.js'

describe('Deque', () => {
  it('behaves as an array, also beyond the size at which it gives memory back', () => {
    const step = fc.oneof(
      fc.record({ push: fc.integer({ min: 1, max: 3000 }) }),
      fc.record({ unshift: fc.integer({ min: 1, max: 50 }) }),
      fc.record({ shift: fc.integer({ min: 1, max: 4000 }) }),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const deque = new Deque<number>()
        const model: number[] = []
        let next = 0
        for (const each of steps) {
          if ('push' in each) {
            for (let i = 0; i < each.push; i++) {
              deque.push(next)
              model.push(next++)
            }
          } else if ('unshift' in each) {
            for (let i = 0; i < each.unshift; i++) {
              deque.unshift(next)
              model.unshift(next++)
            }
          } else {
            for (let i = 0; i < each.shift; i++) expect(deque.shift()).toBe(model.shift())
          }
          expect(deque.size).toBe(model.length)
          expect(deque.peek()).toBe(model[0])
        }
        expect([...deque]).toEqual(model)
        expect(deque.drain()).toEqual(model)
      }),
      { numRuns: 50 },
    )
  })
})
