import { type CheckResult, examine, runCheck, type Subject } from '@longshore/conformance'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { cells } from './cells/index.js'
import { Leaks } from './leaks.js'
import { figuresOf, type Outcome, save } from './table.js'
import type { FaultTarget } from './target.js'

/** Registers every fault as a test of this driver. Each prints what it found; `setup.ts` prints the table. */
export function faults(target: FaultTarget): void {
  describe(`faults on ${target.driver}`, () => {
    let subject: Subject | undefined
    const outcomes: Outcome[] = []
    beforeAll(async () => {
      subject = await examine(target)
    })
    afterAll(async () => {
      await target.close?.()
      const folder = process.env.LONGSHORE_FAULTS_PARTS
      if (!subject || outcomes.length === 0 || !folder) return
      save(folder, { driver: target.driver, server: subject.server, outcomes })
    })
    for (const cell of cells(target)) {
      // Cleaning up and looking for leaks come on top of the cell's own limit.
      const timeout = (cell.timeoutMs ?? 30_000) + 60_000
      test(`${cell.id}: ${cell.title}`, { timeout }, async (context) => {
        if (!subject) throw new Error('the target could not be examined')
        const leaks = Leaks.before(target)
        const result = await runCheck(cell, target, subject.capabilities)
        const leak = result.status === 'skipped' ? undefined : await leaks.after()
        const outcome = outcomeOf(result, leak)
        outcomes.push(outcome)
        if (outcome.status === 'skipped') context.skip(outcome.reason)
        console.log(`${target.driver}: ${cell.id}: ${figuresOf(outcome)} (${outcome.ms} ms)`)
        if (outcome.status === 'failed') throw new Error(outcome.reason)
      })
    }
  })
}

export function outcomeOf(result: CheckResult, leak?: string): Outcome {
  const { id, title, ms, counts = {} } = result
  const leaked = leak !== undefined && result.status === 'passed'
  const reason = leaked ? `left open: ${leak}` : result.reason
  return {
    cell: id,
    title,
    status: leaked ? 'failed' : result.status,
    ms,
    ...(reason === undefined ? {} : { reason }),
    counts,
  }
}
