import { createRequire } from 'node:module'
import type { Capabilities } from '@longshore/core'
import type { Area } from './check.js'
import type { ConformanceTarget } from './target.js'

export interface CheckResult {
  readonly id: string
  readonly title: string
  readonly area: Area
  /** The number in the list of checks. */
  readonly ref: number
  readonly noLoss?: boolean
  readonly status: 'passed' | 'failed' | 'skipped'
  readonly ms: number
  /** Why it failed or was skipped. */
  readonly reason?: string
  readonly counts?: Readonly<Record<string, number>>
}

/** The outcome of a run, as it is written to JSON. */
export interface Report {
  readonly driver: string
  readonly server: string
  /** The driver's version, or the kit's where the target tells none. */
  readonly version: string
  /** The kit's. */
  readonly kit: string
  readonly passed: number
  readonly failed: number
  readonly skipped: number
  /** No-loss checks that did not run: what this report does not prove. */
  readonly unproven: readonly string[]
  readonly ms: number
  readonly capabilities: Capabilities
  readonly notes?: readonly string[]
  readonly checks: readonly CheckResult[]
}

export const kitVersion: string = createRequire(import.meta.url)('../package.json').version

export function summarize(
  target: ConformanceTarget,
  subject: { readonly server: string; readonly capabilities: Capabilities },
  checks: readonly CheckResult[],
  ms: number,
): Report {
  const of = (status: CheckResult['status']) => checks.filter((c) => c.status === status)
  return {
    driver: target.driver,
    server: subject.server,
    version: target.version ?? kitVersion,
    kit: kitVersion,
    passed: of('passed').length,
    failed: of('failed').length,
    skipped: of('skipped').length,
    unproven: of('skipped')
      .filter((c) => c.noLoss)
      .map((c) => c.id),
    ms: Math.round(ms),
    capabilities: subject.capabilities,
    ...(target.notes ? { notes: target.notes } : {}),
    checks,
  }
}

/** The report without what differs from run to run, so that it changes only when the driver does. */
export function forDocs(report: Report): Report {
  const checks = report.checks.map(({ counts: _, ...check }) => ({ ...check, ms: 0 }))
  return { ...report, ms: 0, checks }
}

const marks = { passed: '✓', failed: '✗', skipped: '-' } as const

/** One line for a result. */
export function formatResult(result: CheckResult): string {
  const line = `${marks[result.status]} ${result.id} (${result.ms} ms)`
  const loss = result.status === 'skipped' && result.noLoss ? ' NO-LOSS CHECK NOT RUN:' : ''
  return result.reason === undefined ? line : `${line}${loss} ${result.reason}`
}

/** The last lines of a run. */
export function formatSummary(report: Report): string {
  const lines = [
    `${report.driver} on ${report.server}: ${report.passed} passed, ${report.failed} failed, ` +
      `${report.skipped} skipped in ${(report.ms / 1000).toFixed(1)} s`,
  ]
  if (report.unproven.length > 0) {
    lines.push(`No-loss checks that did not run: ${report.unproven.join(', ')}`)
  }
  for (const check of report.checks) {
    if (check.status === 'failed') lines.push(`failed: ${check.id} (${check.title})`)
  }
  return lines.join('\n')
}
