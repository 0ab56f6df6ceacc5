import { afterAll, beforeAll, describe, test } from 'vitest'
import type { Check } from './check.js'
import { checks as allChecks } from './checks/index.js'
import { type CheckResult, type Report, summarize } from './report.js'
import { examine, newRunId, runCheck, type Subject, select, timeoutOf } from './run.js'
import type { ConformanceTarget } from './target.js'

export interface ConformanceOptions {
  /** Ids, or the beginnings of ids up to a dot (`order`). Default: all. */
  readonly only?: readonly string[]
  readonly checks?: readonly Check[]
  /** Gets the report when all checks are through. */
  readonly onReport?: (report: Report) => void | Promise<void>
}

/** Registers every check as a test, named by its id. A skipped one shows its reason. */
export function conformance(target: ConformanceTarget, options: ConformanceOptions = {}): void {
  describe(`conformance of ${target.driver}`, () => {
    const results: CheckResult[] = []
    const runId = newRunId()
    const started = performance.now()
    let subject: Subject | undefined
    beforeAll(async () => {
      subject = await examine(target)
    })
    afterAll(async () => {
      if (!subject || !options.onReport) return
      await options.onReport(summarize(target, subject, results, performance.now() - started))
    })
    for (const check of select(options.only, options.checks ?? allChecks)) {
      // Cleaning up comes on top of the check's own limit.
      const timeout = timeoutOf(check, target) + 20_000
      test(`${check.id}: ${check.title}`, { timeout }, async (context) => {
        if (!subject) throw new Error('the target could not be examined')
        if (check.applies && !check.applies(subject.capabilities)) {
          context.skip('does not apply: the driver declares it')
        }
        const result = await runCheck(check, target, subject.capabilities, runId)
        results.push(result)
        if (result.status === 'skipped') context.skip(result.reason)
        if (result.status === 'failed') throw new Error(result.reason)
      })
    }
  })
}
