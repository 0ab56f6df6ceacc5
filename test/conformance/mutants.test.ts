// The kit must be able to fail: every wrong driver must be found out by the checks that claim to.
import {
  type Check,
  type ConformanceTarget,
  checks,
  examine,
  memoryTarget,
  runCheck,
} from '@longshore/conformance'
import { describe, expect, test } from 'vitest'
import { mutants, wrongTarget } from './mutants/index.js'

const byId = new Map(checks.map((check) => [check.id, check]))

/** No driver within the process has what these need; the network tests run them. */
const elsewhere = ['connection.half-open', 'connection.slow-and-flaky']

const pairs = mutants.flatMap((mutant) =>
  Object.entries(mutant.claims).map(([id, says]) => ({ mutant, id, says })),
)

async function run(id: string, target: ConformanceTarget) {
  const check = byId.get(id)
  if (!check) throw new Error(`there is no check '${id}'`)
  const { capabilities } = await examine(target)
  return runCheck(check, target, capabilities)
}

describe.concurrent('wrong drivers are found out', () => {
  for (const { mutant, id, says } of pairs) {
    test(`${id} fails on a driver that ${mutant.name}`, { timeout: 60_000 }, async () => {
      const target = wrongTarget(mutant.changes)
      // What never comes need not be awaited so long.
      const result = await run(id, { ...target, tolerances: { slowness: 0.3 } })
      expect(result.status, result.reason).toBe('failed')
      expect(result.reason).toMatch(says)
    })
  }
})

describe.concurrent('the honest driver passes the same checks', () => {
  for (const id of new Set(pairs.map((pair) => pair.id))) {
    test(id, { timeout: 120_000 }, async () => {
      const result = await run(id, memoryTarget(`honest-${id}`))
      expect(result.status, result.reason).toBe('passed')
    })
  }
})

test('every no-loss, settling and order check is claimed by a mutant', () => {
  const claimed = new Set(pairs.map((pair) => pair.id))
  const due = (check: Check) => check.noLoss || ['settle', 'order', 'redrive'].includes(check.area)
  const unclaimed = checks.filter(
    (check) => due(check) && !claimed.has(check.id) && !elsewhere.includes(check.id),
  )
  expect(unclaimed.map((check) => check.id)).toEqual([])
})
