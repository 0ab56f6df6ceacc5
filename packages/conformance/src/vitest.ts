import { afterAll, beforeAll, describe, test } from 'vitest'
import type { Check } from './check.js'
import { checks as allChecks } from './checks/index.js'
import { type CheckResult, formatResult, formatSummary, type Report, summarize } from './report.js'
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
    afterAll(() => target.close?.())
    afterAll(async () => {
      if (!subject || results.length === 0) return
      const report = summarize(target, subject, results, performance.now() - started)
      console.log(formatSummary(report))
      for (const one of results) if (one.status === 'skipped') console.log(formatResult(one))
      await options.onReport?.(report)
    })
    const runOne = async (check: Check): Promise<CheckResult> => {
      if (!subject) throw new Error('the target could not be examined')
      const result = await runCheck(check, target, subject.capabilities, runId)
      results.push(result)
      return result
    }
    const chosen = select(options.only, options.checks ?? allChecks)
    const apart = (check: Check) => check.schedule !== undefined
    // Those that may run beside others come first, as one concurrent run.
    for (const check of chosen.sort((a, b) => Number(apart(a)) - Number(apart(b)))) {
      if (check.applies) continue
      // Cleaning up comes on top of the check's own limit.
      const timeout = timeoutOf(check, target) + 20_000
      const define = apart(check) ? test : test.concurrent
      define(`${check.id}: ${check.title}`, { timeout }, async (context) => {
        const { status, reason } = await runOne(check)
        if (status === 'skipped') context.skip(reason)
        if (status === 'failed') throw new Error(reason)
      })
    }
    const refusals = chosen.filter((check) => check.applies)
    if (refusals.length === 0) return
    // One test for all: which of them apply is known only when the driver has connected.
    test('unsupported: what the driver does not declare it refuses', async () => {
      for (const check of refusals) {
        if (!subject || !check.applies?.(subject.capabilities)) continue
        const { status, reason } = await runOne(check)
        if (status === 'failed') throw new Error(`${check.id}: ${reason}`)
      }
    })
  })
}
