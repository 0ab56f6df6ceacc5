import { type ConsumeMiddleware, connect, silentLogger } from '@longshore/core'
import { expect, it } from 'vitest'
import { differences } from './compare.js'
import { computeDirectly } from './direct.js'
import { damage, loadFlights } from './events.js'
import { delayFailures, routeFailure } from './failures.js'
import { runJob } from './job.js'
import { report } from './report.js'

const flights = loadFlights(1500)
const damaged = damage(flights)
const expected = computeDirectly(flights, damaged)
const work = { flights, damaged, alertCount: expected.alertCount }
const options = {
  run: 't',
  signal: new AbortController().signal,
  deadlineMs: 20_000,
  stallMs: 20_000,
}

it('ends equal to the direct computation, failures, dead letters and redrive included', async () => {
  await using bus = await connect('memory://', { logger: silentLogger })
  const outcome = await runJob(bus, work, options)
  expect(outcome.missing).toEqual([])
  expect(differences(outcome.consumers.results, expected)).toEqual([])

  const figures = report(outcome, work, [])
  expect(figures.equal).toBe(true)
  const [delays, routes, alerts] = figures.groups
  const exhausted = flights.filter(({ seq }) => routeFailure(seq) === 'until-repaired').length
  const once = flights.filter(({ seq }) => routeFailure(seq) === 'once').length
  expect(exhausted).toBeGreaterThan(0)
  expect(delays).toMatchObject({
    published: flights.length + damaged.length,
    handled: flights.length,
    retried: flights.reduce((sum, { seq }) => sum + delayFailures(seq), 0),
    deadLettered: damaged.length,
    redriven: 0,
    duplicates: 0,
  })
  expect(routes).toMatchObject({
    handled: flights.length,
    retried: once + 2 * exhausted,
    deadLettered: damaged.length + exhausted,
    redriven: exhausted,
    duplicates: 0,
  })
  expect(alerts).toMatchObject({ published: work.alertCount, handled: work.alertCount })
})

it.each([
  ['the deadline passes', { deadlineMs: 2000 }],
  ['nothing happens any more', { stallMs: 500 }],
])('says what is missing when %s', async (_, limits) => {
  await using bus = await connect('memory://', { logger: silentLogger })
  const more = { ...work, alertCount: work.alertCount + 1 }
  const outcome = await runJob(bus, more, { ...options, ...limits })
  expect(outcome.missing).toEqual([`alerts handled: ${work.alertCount} of ${work.alertCount + 1}`])
  expect(report(outcome, more, []).equal).toBe(false)
})

it('finds a message out that was acked but never handled', async () => {
  const swallow: ConsumeMiddleware = (context, next) =>
    context.message.id === 'flight-10' && context.group.startsWith('delays')
      ? undefined
      : next(context)
  await using bus = await connect('memory://', {
    logger: silentLogger,
    consume: { middleware: [swallow] },
  })
  const outcome = await runJob(bus, work, { ...options, stallMs: 500 })
  expect(outcome.missing).toEqual([`handled by delays: ${flights.length - 1} of ${flights.length}`])
})
