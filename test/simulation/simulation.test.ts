import { describe, expect, test } from 'vitest'
import { explain } from './cli.js'
import { type Flaw, type FlawName, flaws } from './flaws.js'
import { runMany } from './many.js'
import { runSeed } from './run.js'

/** At most, within some seconds; a busy machine does fewer. `npm run simulate` does as many as you like. */
const seeds = 2000
const seconds = 12
const least = 100

describe('the simulation', () => {
  test('finds no broken rule', { timeout: 120_000 }, async () => {
    const summary = await runMany({ from: 1, count: seeds, seconds })
    const [failed] = summary.failed
    const report = failed && explain(await runSeed(failed.seed, { traced: true }), 40)
    expect(report).toBeUndefined()
    expect(summary.runs).toBeGreaterThan(least)
    // It would prove nothing if nothing happened.
    for (const name of ['handled', 'retried', 'dead', 'redriven', 'revoked', 'faults']) {
      expect(summary.counts[name], name).toBeGreaterThan(summary.runs)
    }
    expect(Object.keys(summary.weather).sort()).toEqual(['calm', 'mild', 'wild'])
  })

  test('replays: one seed, one trace', async () => {
    for (const seed of [3, 5, 8, 10]) {
      const first = await runSeed(seed, { traced: true })
      const again = await runSeed(seed, { traced: true })
      expect(first.lines.length).toBeGreaterThan(20)
      expect(again.lines).toEqual(first.lines)
      expect(again.hash).toBe(first.hash)
    }
  })

  test('replays beside others, and untraced', async () => {
    const alone = await runSeed(5, { traced: true })
    const [beside] = await Promise.all([runSeed(5, { traced: true }), runSeed(8), runSeed(9)])
    expect(beside.hash).toBe(alone.hash)
    expect((await runSeed(5)).counts).toEqual(alone.counts)
  })

  test('two seeds are two stories', async () => {
    const hashes = await Promise.all(
      [1, 2, 3, 4].map(async (seed) => (await runSeed(seed, { traced: true })).hash),
    )
    expect(new Set(hashes).size).toBe(4)
  })
})

describe('the simulation catches a driver or consumer that', () => {
  for (const name of Object.keys(flaws) as FlawName[]) {
    test(name, { timeout: 60_000 }, async () => {
      const flaw: Flaw = flaws[name]
      const { failed, runs } = await runMany({ from: 1, count: 300, flaw })
      expect(failed, `not noticed in ${runs} seeds`).toHaveLength(1)
      expect(flaw.caughtBy).toContain(failed[0]?.violation?.rule)
    })
  }

  test('ignores the order of keys: both that two run at once and that one passes', async () => {
    const flaw = flaws['ignores the order of keys']
    const { failed } = await runMany({ from: 1, count: 60, all: true, flaw })
    const rules = new Set(failed.map(({ violation }) => violation?.rule))
    expect([...rules]).toEqual(expect.arrayContaining(['overlap', 'order']))
  })
})
