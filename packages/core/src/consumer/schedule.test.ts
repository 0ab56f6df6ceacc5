import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Context } from './context.js'
import { LaneSchedule, PlainSchedule, type Schedule } from './schedule.js'

interface Item {
  readonly key: string | undefined
  readonly n: number
  readonly dropped: boolean
}

const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ add: fc.constantFrom('a', 'b', 'c', undefined) }) },
  { weight: 4, arbitrary: fc.constant({ next: true as const }) },
  { weight: 3, arbitrary: fc.record({ done: fc.nat(20) }) },
  { weight: 1, arbitrary: fc.record({ again: fc.nat(20) }) },
  { weight: 1, arbitrary: fc.constant({ drain: true as const }) },
  { weight: 1, arbitrary: fc.record({ putBack: fc.nat(20) }) },
)

type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

/** Drives a schedule and a plain model of it through any steps, and compares. */
function drive(schedule: Schedule, ordered: boolean, steps: readonly Step[]) {
  const waiting = new Map<string | undefined, Item[]>()
  const running: Item[] = []
  const laneOf = (item: Item) => (ordered ? item.key : undefined)
  const lane = (key: string | undefined) => {
    if (!waiting.has(key)) waiting.set(key, [])
    return waiting.get(key)!
  }
  const busy = (key: string | undefined) =>
    key !== undefined && running.some((item) => item.key === key)
  const free = () =>
    [...waiting].filter(([key, items]) => items.length > 0 && !(ordered && busy(key)))
  let n = 0
  for (const each of steps) {
    if ('add' in each) {
      const item: Item = { key: each.add, n: n++, dropped: false }
      schedule.add(item as unknown as Context)
      lane(laneOf(item)).push(item)
    } else if ('next' in each) {
      const next = schedule.next() as unknown as Item | undefined
      if (next === undefined) expect(free()).toEqual([])
      else {
        // The first of its lane, and no other of its key is running.
        if (ordered) expect(busy(next.key)).toBe(false)
        expect(lane(laneOf(next)).shift()).toBe(next)
        running.push(next)
      }
    } else if ('done' in each || 'again' in each) {
      if (running.length === 0) continue
      const index = ('done' in each ? each.done : each.again) % running.length
      const [item] = running.splice(index, 1)
      if ('done' in each) schedule.done(item as unknown as Context)
      else {
        schedule.again(item as unknown as Context)
        lane(laneOf(item!)).unshift(item!)
      }
    } else {
      const drained = schedule.drain() as unknown as Item[]
      for (const [key, items] of waiting) {
        expect(drained.filter((item) => laneOf(item) === key)).toEqual(items)
        items.length = 0
      }
      expect(schedule.next()).toBeUndefined()
      if ('putBack' in each) {
        // As when some of them were taken away: the others stand where they stood.
        const kept = drained.filter((item) => item.n % 3 !== each.putBack % 3)
        schedule.putBack(kept as unknown as Context[])
        for (const item of kept) lane(laneOf(item)).push(item)
      }
    }
    expect(schedule.size).toBe([...waiting.values()].reduce((sum, items) => sum + items.length, 0))
  }
}

describe('schedules', () => {
  it('LaneSchedule runs each key one at a time and in order, and holds nothing back for nothing', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100, size: 'max' }), (steps) => {
        drive(new LaneSchedule(), true, steps)
      }),
      { numRuns: 500 },
    )
  })

  it('PlainSchedule runs in the order of arrival', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100, size: 'max' }), (steps) => {
        drive(new PlainSchedule(), false, steps)
      }),
      { numRuns: 200 },
    )
  })

  it('LaneSchedule takes the keys in turn, and those without a key too', () => {
    const schedule = new LaneSchedule()
    const add = (key: string | undefined, n: number) =>
      schedule.add({ key, n, dropped: false } as unknown as Context)
    for (let n = 0; n < 3; n++) for (const key of ['a', 'b', undefined]) add(key, n)
    const order: string[] = []
    for (let next = schedule.next(); next !== undefined; next = schedule.next()) {
      order.push(String(next.key))
      schedule.done(next)
    }
    expect(order.filter((key) => key !== 'undefined')).toEqual(['a', 'b', 'a', 'b', 'a', 'b'])
    expect(order.slice(0, 6)).toContain('undefined')
  })
})
