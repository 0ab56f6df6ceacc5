import { describe, expect, it } from 'vitest'
import { checkOptions, nearest } from './options.js'

describe('options', () => {
  it('finds the nearest name if it is near enough to be a slip', () => {
    const known = ['concurrency', 'group', 'order', 'retry']
    expect(nearest('concurency', known)).toBe('concurrency')
    expect(nearest('CONCURRENCY', known)).toBe('concurrency')
    expect(nearest('gruop', known)).toBe('group')
    expect(nearest('xyz', known)).toBeUndefined()
    expect(nearest('', known)).toBeUndefined()
  })

  it('lists what is known where nothing is near', () => {
    expect(() => checkOptions('here', { zebra: 1 }, ['a', 'b'])).toThrow(
      /^here: there is no option 'zebra'; known are: a, b$/,
    )
    expect(() => checkOptions('here', { a: 1, b: undefined }, ['a', 'b'])).not.toThrow()
  })
})
