// The kit must be able to fail: every wrong driver must be found out by the checks that claim to.
import {
  type Check,
  type CheckResult,
  checks,
  examine,
  memoryTarget,
  runCheck,
  runConformance,
} from '@longshore/conformance'
import { beforeAll, describe, expect, test } from 'vitest'
import { type Mutant, mutants, wrongTarget } from './mutants/index.js'

/** No driver within the process has what these need; network.test.ts runs them. */
const elsewhere = ['connection.half-open', 'connection.slow-and-flaky']

const pairs = mutants.flatMap((mutant) =>
  Object.entries(mutant.claims).map(([id, says]) => ({ mutant, id, says })),
)
const claimed = new Set(pairs.map((pair) => pair.id))

async function runOn(mutant: Mutant, id: string): Promise<CheckResult> {
  const check = checks.find((one) => one.id === id)
  if (!check) throw new Error(`there is no check '${id}'`)
  // What never comes need not be awaited as long as from a broker.
  const target = { ...wrongTarget(mutant), tolerances: { slowness: 0.2 } }
  const { capabilities } = await examine(target)
  return runCheck(check, target, capabilities)
}

describe('wrong drivers are found out', () => {
  const results = new Map<object, CheckResult>()
  // Beside each other: they mostly wait for what does not come.
  beforeAll(async () => {
    const queue = [...pairs]
    const work = async () => {
      for (let pair = queue.shift(); pair !== undefined; pair = queue.shift()) {
        results.set(pair, await runOn(pair.mutant, pair.id))
      }
    }
    await Promise.all(Array.from({ length: 24 }, work))
  }, 120_000)

  for (const pair of pairs) {
    test(`${pair.id} fails on a driver that ${pair.mutant.name}`, () => {
      const result = results.get(pair)
      expect(result?.status, result?.reason).toBe('failed')
      expect(result?.reason).toMatch(pair.says)
    })
  }
})

test('the honest driver passes the same checks', { timeout: 120_000 }, async () => {
  const only = [...claimed]
  const report = await runConformance(memoryTarget('honest'), { only })
  const wrong = report.checks.filter((result) => result.status !== 'passed')
  expect(wrong.map(({ id, reason }) => `${id}: ${reason}`)).toEqual([])
  expect(report.passed).toBe(claimed.size)
})

test('every no-loss, settling, redrive, order and routing check is claimed by a mutant', () => {
  const due = (check: Check) =>
    check.noLoss || ['settle', 'order', 'redrive', 'routing'].includes(check.area)
  const unclaimed = checks.filter(
    (check) => due(check) && !claimed.has(check.id) && !elsewhere.includes(check.id),
  )
  expect(unclaimed.map((check) => check.id)).toEqual([])
})
