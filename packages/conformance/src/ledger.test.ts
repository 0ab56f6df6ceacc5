import { expect, test } from 'vitest'
import { Ledger } from './ledger.js'

const entry = (n: number, key = 'k') => ({ producer: 'p', key, n })

test('counts what was lost, repeated, invented and out of order', () => {
  const ledger = new Ledger()
  for (let n = 0; n < 5; n++) ledger.confirm(entry(n))
  ledger.publish(entry(5))
  for (const n of [0, 2, 1, 2, 3, 9]) ledger.see(entry(n))
  expect(ledger.counts()).toEqual({
    published: 6,
    confirmed: 5,
    seen: 5,
    lost: 1,
    duplicates: 1,
    invented: 1,
    orderBreaks: 1,
  })
  expect(ledger.missing()).toEqual(['p/k/4'])
  expect(() => ledger.verify({ order: true, duplicates: 0 })).toThrow(
    /lost 1: p\/k\/4; 1 seen that nobody published; 1 duplicates, at most 0 allowed; order broken: 1: p\/k\/1 after number 2/,
  )
})

test('redelivery of what was seen is a duplicate and breaks no order', () => {
  const ledger = new Ledger()
  for (let n = 0; n < 3; n++) ledger.confirm(entry(n))
  for (const n of [0, 1, 0, 1, 2]) ledger.see(entry(n))
  expect(ledger.verify({ order: true, duplicates: 2 })).toMatchObject({ lost: 0, orderBreaks: 0 })
})

test('keys, producers and groups are lines of their own', () => {
  const ledger = new Ledger()
  for (const key of ['a', 'b']) for (const n of [0, 1]) ledger.confirm(entry(n, key))
  for (const [n, key] of [
    [1, 'a'],
    [1, 'b'],
    [0, 'b'],
  ] as const)
    ledger.see(entry(n, key), 'one')
  expect(ledger.counts('one')).toMatchObject({ lost: 1, orderBreaks: 1 })
  expect(ledger.counts('two')).toMatchObject({ lost: 4, orderBreaks: 0 })
})

test('what was not confirmed may be lost, and may be seen', () => {
  const ledger = new Ledger()
  ledger.publish(entry(0))
  ledger.publish(entry(1))
  ledger.see(entry(1))
  expect(ledger.verify()).toMatchObject({ lost: 0, invented: 0, seen: 1 })
})
