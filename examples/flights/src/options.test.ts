import { expect, it } from 'vitest'
import { damage, loadFlights } from './events.js'
import { parseOptions, UsageError } from './options.js'
import { nearestRank } from './report.js'

it('takes the memory driver and the whole file by default', () => {
  expect(parseOptions([])).toEqual({
    url: undefined,
    broker: undefined,
    events: 20_000,
    json: undefined,
    help: false,
  })
})

it.each([
  [['--event', '5'], "Unknown option '--event'"],
  [['flights'], "Unexpected argument 'flights'"],
  [['--events', '0'], "--events is '0'; give a whole number from 1 on"],
  [['--events', '1.5'], "--events is '1.5'; give a whole number from 1 on"],
  [['--url', 'nats://h', '--broker', 'nats'], 'give --url or --broker, not both'],
])('refuses %j with one line', (args, message) => {
  const parse = () => parseOptions(args)
  expect(parse).toThrow(UsageError)
  expect(parse).toThrow(message)
})

it('damages one flight in a hundred, in four ways, the same ones each time', () => {
  const flights = loadFlights(1000)
  const damaged = damage(flights)
  expect(damaged).toEqual(damage(flights))
  expect(damaged).toHaveLength(10)
  expect(new Set(damage(loadFlights(4)).map(({ reason }) => reason))).toEqual(
    new Set(['invalid', 'undecodable']),
  )
})

it('starts the file over when more flights are asked for than it has', () => {
  const flights = loadFlights(20_001)
  expect(flights[20_000]).toEqual({ ...flights[0], seq: 20_000 })
})

it('ranks without interpolating', () => {
  expect(nearestRank([10, 1, 2], 0.5)).toBe(2)
  expect(nearestRank([1, 2, 3, 4], 0.99)).toBe(4)
  expect(nearestRank([], 0.5)).toBeNaN()
})
