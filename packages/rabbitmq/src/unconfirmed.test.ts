import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Unconfirmed, UnconfirmedWindow } from './unconfirmed.js'

const item = (id: string) => new Unconfirmed('e', 'k', id, 0, () => {}, 0)

test('each message is taken once, by its own tag or by a later one, in order', () => {
  const confirm = fc.record({ at: fc.nat(), multiple: fc.boolean(), pushes: fc.nat(20) })
  fc.assert(
    fc.property(fc.array(confirm, { maxLength: 100 }), (confirms) => {
      const window = new UnconfirmedWindow()
      const open = new Map<number, string>()
      let tag = 0
      for (const { at, multiple, pushes } of confirms) {
        for (let n = 0; n < pushes; n++) {
          tag++
          expect(window.nextTag).toBe(tag)
          window.push(item(`m${tag}`))
          open.set(tag, `m${tag}`)
        }
        if (open.size === 0) continue
        const chosen = [...open.keys()][at % open.size]!
        const expected = [...open].filter(([t]) => (multiple ? t <= chosen : t === chosen))
        const taken: string[] = []
        window.take(chosen, multiple, ({ id }) => taken.push(id))
        expect(taken).toEqual(expected.map(([, id]) => id))
        for (const [t] of expected) open.delete(t)
        expect(window.size).toBe(open.size)
        expect([...window].map(({ id }) => id)).toEqual([...open.values()])
      }
      for (const [t] of open) {
        const [each] = [...window].filter(({ id }) => id === `m${t}`)
        expect(window.tagOf(each)).toBe(t)
      }
      expect(window.drain().map(({ id }) => id)).toEqual([...open.values()])
      expect(window.size).toBe(0)
    }),
  )
})

test('it goes on behind a message that is confirmed late', () => {
  const window = new UnconfirmedWindow()
  window.push(item('first'))
  for (let n = 2; n <= 100_000; n++) {
    window.push(item(`m${n}`))
    if (n === 50_000) window.take(1, false, () => {})
    if (n > 2) window.take(n - 1, false, () => {})
  }
  expect(window.nextTag).toBe(100_001)
  expect(window.size).toBe(1)
})
