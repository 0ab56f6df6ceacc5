import { describe, expect, it } from 'vitest'
import { differences } from './compare.js'
import { computeDirectly } from './direct.js'
import { damage, loadFlights } from './events.js'
import { alertAbove } from './results.js'
import { Tally } from './tally.js'
import type { Flight } from './topics.js'

const flights = loadFlights(2000)
const damaged = damage(flights)
const expected = computeDirectly(flights, damaged)

/** What handlers that get these flights in this order compute. */
function handled(delays: readonly Flight[], routes = delays, alerts = delays): Tally {
  const tally = new Tally()
  for (const flight of delays) tally.addDelay(flight)
  for (const flight of routes) tally.addRoute(flight)
  for (const { seq, origin, delay } of alerts) {
    if (delay > alertAbove) tally.addAlert({ seq, origin, delay })
  }
  for (const { id, reason } of damaged) {
    tally.deadLetters.delays.set(id, reason)
    tally.deadLetters.routes.set(id, reason)
  }
  return tally
}

const without = (at: number) => flights.toSpliced(at, 1)
const twice = (at: number) => flights.toSpliced(at, 0, flights[at]!)

/** Two flights of one airport, the later one first. */
function swapped(): Flight[] {
  const second = flights.findIndex(({ origin }, at) => at > 0 && origin === flights[0]!.origin)
  return [flights[second]!, ...flights.slice(1, second), flights[0]!, ...flights.slice(second + 1)]
}

it('finds the results equal when each flight is handled once, in order', () => {
  expect(differences(handled(flights), expected)).toEqual([])
})

it('accepts other airports in between, and routes and alerts in any order', () => {
  const byAirport = flights.toSorted((a, b) => a.origin.localeCompare(b.origin) || a.seq - b.seq)
  const reversed = flights.toReversed()
  expect(differences(handled(byAirport, reversed, reversed), expected)).toEqual([])
})

describe('finds', () => {
  const late = flights.findIndex(({ delay }) => delay > alertAbove)

  it.each([
    ['a lost flight in delays', handled(without(1000), flights, flights), 'airport'],
    ['a doubled flight in delays', handled(twice(1000), flights, flights), 'airport'],
    ['two flights of an airport swapped in delays', handled(swapped(), flights, flights), 'chain'],
    ['a lost flight in routes', handled(flights, without(1000), flights), 'route'],
    ['a doubled flight in routes', handled(flights, twice(1000), flights), 'route'],
    ['a lost alert', handled(flights, flights, without(late)), 'alerts of'],
    ['a doubled alert', handled(flights, flights, twice(late)), 'alerts of'],
  ])('%s', (_, tally, what) => {
    const found = differences(tally, expected)
    expect(found.length).toBeGreaterThan(0)
    for (const line of found) expect(line).toContain(what)
  })

  it('a damaged copy that is not in the dead letters', () => {
    const tally = handled(flights)
    tally.deadLetters.delays.delete(damaged[0]!.id)
    expect(differences(tally, expected)).toEqual([
      `dead letter of delays ${damaged[0]!.id} is missing: expected invalid`,
    ])
  })

  it('a good flight in the dead letters', () => {
    const tally = handled(flights)
    tally.deadLetters.routes.set('flight-1', 'exhausted')
    expect(differences(tally, expected)).toEqual([
      'dead letter of routes flight-1 should not be there: exhausted',
    ])
  })

  it('a damaged copy with another reason', () => {
    const tally = handled(flights)
    tally.deadLetters.routes.set(damaged[1]!.id, 'exhausted')
    expect(differences(tally, expected)).toEqual([
      `dead letter of routes ${damaged[1]!.id}: exhausted instead of undecodable`,
    ])
  })
})
