import { describe, expect, it } from 'vitest'
import { newId } from './message.js'

describe('newId', () => {
  it('makes valid UUIDs of version 7', () => {
    for (let i = 0; i < 3000; i++) {
      expect(newId()).toMatch(
        /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
      )
    }
  })

  it('makes them unique and sorted, however many come in one millisecond', () => {
    const now = Date.now() + 1_000_000
    const ids = Array.from({ length: 20_000 }, () => newId(now))
    expect(new Set(ids).size).toBe(ids.length)
    expect([...ids].sort()).toEqual(ids)
  })

  it('keeps them sorted when the clock goes back', () => {
    const now = Date.now() + 2_000_000
    const ids = [newId(now), newId(now - 5000), newId(now - 1), newId(now + 100)]
    expect([...ids].sort()).toEqual(ids)
  })

  it('carries the time', () => {
    const now = Date.now() + 5_000_000
    const id = newId(now)
    expect(Number.parseInt(id.replace(/-/g, '').slice(0, 12), 16)).toBe(now)
  })
})
