import { expect, it } from 'vitest'
import { longshore } from './longshore.js'
import { parseOptions, UsageError } from './options.js'
import { Ledger, makerOf } from './payloads.js'
import { memory } from './raw/memory.js'
import { table } from './report.js'
import { measure } from './rounds.js'
import { memoryScenarios as scenarios } from './scenarios/index.js'
import type { Kind, Payloads, Session, Settings, Target } from './session.js'
import { median, nearestRank } from './stats.js'

const quick = scenarios.filter(({ name }) => name.startsWith('end-to-end'))
const plan = { raw: memory, rounds: 2, messages: 2000, progress: () => {} }

it('measures throughput through both targets in as many rounds', async () => {
  const results = []
  for (const scenario of scenarios.filter(({ name }) => /^(end-to-end|publish)/.test(name))) {
    results.push(...(await measure(scenario, { ...plan, longshore: memory })))
  }
  for (const { longshore, raw, ratio, rounds } of results) {
    expect(longshore).toBeGreaterThan(0)
    expect(ratio).toBeCloseTo(longshore / raw)
    expect(rounds.longshore).toHaveLength(2)
    expect(rounds.raw).toHaveLength(2)
  }
  expect(table(results, 'Longshore', memory.name)).toContain('64 keys in order')
})

it('runs Longshore through every kind of scenario', async () => {
  for (const scenario of scenarios.filter(({ name }) => !/^(slow|latency)/.test(name))) {
    const own = { ...plan, rounds: 1, longshore: longshore('memory://') }
    for (const { longshore } of await measure(scenario, own)) expect(longshore).toBeGreaterThan(0)
  }
})

it('fails when a message is left unhandled', async () => {
  const forgetful: Target = {
    name: 'forgetful',
    async open<K extends Kind>(settings: Settings<K>) {
      const session: Session<Payloads[K]> = await memory.open(settings)
      const publish = session.publish.bind(session)
      let first = true
      session.publish = (payload, key) => {
        if (!first) return publish(payload, key)
        first = false
        return Promise.resolve()
      }
      return session
    },
  }
  const lost = measure(quick[0]!, { ...plan, messages: 500, longshore: forgetful, patienceMs: 50 })
  await expect(lost).rejects.toThrow('1 of 500 messages were not handled in time')
})

it('reads back the number of each payload, and counts a repeat once', async () => {
  const ledger = new Ledger(3)
  for (const kind of ['text', 'binary', 'json'] as const) {
    const { make, read } = makerOf(kind)
    expect(
      [0, 1, 70_000, 199_999].map((seq) => (read as (p: unknown) => number)(make(seq))),
    ).toEqual([0, 1, 70_000, 199_999])
  }
  for (const seq of [0, 1, 1, 7]) ledger.mark(seq)
  expect(ledger.handled).toBe(2)
  await expect(ledger.complete(10)).rejects.toThrow('1 of 3')
})

it('knows medians and ranks', () => {
  expect(median([3, 1, 2])).toBe(2)
  expect(median([4, 1, 2, 3])).toBe(2.5)
  expect(nearestRank(Float64Array.of(4, 3, 2, 1), 0.5)).toBe(2)
  expect(nearestRank(Float64Array.of(4, 3, 2, 1), 0.99)).toBe(4)
})

it('refuses what it does not know', () => {
  expect(() => parseOptions(['--round', '3'])).toThrow(UsageError)
  expect(() => parseOptions(['--rounds', 'many'])).toThrow("--rounds is 'many'")
})
