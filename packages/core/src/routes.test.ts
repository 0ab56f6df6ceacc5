import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Driver } from './driver.js'
import { checkRoute, checkRoutes, routeMatcher } from './routes.js'

const driver = (routing: string) =>
  ({ name: 'x', server: 'x', capabilities: { routing } }) as unknown as Driver

/** The rules said once more, as plainly as can be. */
function matches(pattern: readonly string[], words: readonly string[]): boolean {
  const [first, ...rest] = pattern
  if (first === undefined) return words.length === 0
  if (first === '#') {
    return matches(rest, words) || (words.length > 0 && matches(pattern, words.slice(1)))
  }
  return words.length > 0 && (first === '*' || first === words[0]) && matches(rest, words.slice(1))
}

describe('routeMatcher', () => {
  const cases: [pattern: string, matching: string[], others: string[]][] = [
    ['eu.created', ['eu.created'], ['', 'eu', 'created', 'eu.created.now', 'EU.created']],
    ['*', ['eu', 'created'], ['', 'eu.created']],
    ['#', ['', 'eu', 'eu.orders.created'], []],
    ['eu.*', ['eu.created', 'eu.paid'], ['', 'eu', 'us.created', 'eu.orders.created']],
    ['eu.#', ['eu', 'eu.created', 'eu.orders.created'], ['', 'us', 'us.eu', 'europe']],
    ['#.created', ['created', 'eu.created', 'eu.orders.created'], ['', 'eu', 'created.eu']],
    ['*.created', ['eu.created'], ['created', 'eu.orders.created']],
    ['eu.#.paid', ['eu.paid', 'eu.a.paid', 'eu.a.paid.b.paid'], ['eu', 'paid', 'eu.paid.a']],
    ['#.*', ['eu', 'eu.created'], ['']],
    ['*.#.*', ['a.b', 'a.b.c'], ['', 'a']],
  ]
  for (const [pattern, matching, others] of cases) {
    it(`${pattern} matches ${matching.join(', ')}, not ${others.join(', ')}`, () => {
      const match = routeMatcher([pattern])
      expect(matching.filter((route) => !match(route))).toEqual([])
      expect(others.filter((route) => match(route))).toEqual([])
    })
  }

  it('takes a message without a route like one with an empty route', () => {
    expect(routeMatcher(['#'])(undefined)).toBe(true)
    expect(routeMatcher(['#.#'])(undefined)).toBe(true)
    expect(routeMatcher(['*', 'a', 'a.#'])(undefined)).toBe(false)
  })

  it('needs one of several to match', () => {
    const match = routeMatcher(['eu.created', 'us.*'])
    expect(['eu.created', 'us.paid', 'eu.paid'].map(match)).toEqual([true, true, false])
  })

  it('agrees with the rules as plainly written, for any pattern and route', () => {
    const word = fc.constantFrom('a', 'b')
    const pattern = fc.array(fc.oneof(word, fc.constantFrom('*', '#')), {
      minLength: 1,
      maxLength: 8,
    })
    fc.assert(
      fc.property(pattern, fc.array(word, { maxLength: 8 }), (parts, words) => {
        expect(routeMatcher([parts.join('.')])(words.join('.'))).toBe(matches(parts, words))
      }),
      { numRuns: 2000 },
    )
  })

  it('is quick on a pattern that invites going back again and again', () => {
    const match = routeMatcher([`${'#.a.'.repeat(24)}b`])
    const route = 'a.'.repeat(49).concat('a')
    const start = performance.now()
    for (let i = 0; i < 1000; i++) expect(match(route)).toBe(false)
    expect(performance.now() - start).toBeLessThan(1000)
  })
})

describe('routes as options', () => {
  it('are words joined by dots, 100 characters at most', () => {
    for (const route of ['a', 'A-b_9.c', 'x'.repeat(100)]) {
      expect(checkRoute(driver('exact'), route)).toBe(route)
      expect(checkRoutes('here', driver('exact'), [route])).toEqual([route])
    }
    for (const route of [
      '',
      '.',
      'a.',
      '.a',
      'a..b',
      'a b',
      'ä',
      'a\n',
      'x'.repeat(101),
      5,
      null,
    ]) {
      expect(() => checkRoute(driver('exact'), route)).toThrow(/route is .*words of letters/)
      expect(() => checkRoutes('here', driver('wildcard'), [route])).toThrow(/here: routes has/)
    }
  })

  it('have wildcards as words of their own, and only when subscribing', () => {
    expect(checkRoutes('here', driver('wildcard'), ['#', '*.a', 'a.#.*'])).toHaveLength(3)
    for (const route of ['a*', '#a', '**', 'a.*b']) {
      expect(() => checkRoutes('here', driver('wildcard'), [route])).toThrow(/routes has/)
    }
    for (const route of ['*', '#', 'a.*']) {
      expect(() => checkRoute(driver('wildcard'), route)).toThrow(/route is/)
    }
  })

  it('are an array of at least one', () => {
    for (const routes of [[], 'a', {}, null]) {
      expect(() => checkRoutes('here', driver('exact'), routes)).toThrow(
        /here: routes is .*an array of at least one route/,
      )
    }
    expect(checkRoutes('here', driver('none'), undefined)).toBeUndefined()
  })

  it('look the same for the same choice', () => {
    expect(checkRoutes('here', driver('exact'), ['b', 'a', 'b'])).toEqual(['a', 'b'])
  })
})
