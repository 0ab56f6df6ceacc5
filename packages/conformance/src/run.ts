import { randomBytes } from 'node:crypto'
import type { Bus, Capabilities } from '@longshore/core'
import { silentLogger } from '@longshore/core'
import { type Check, isUndeclared, unmet } from './check.js'
import { checks as allChecks } from './checks/index.js'
import { CheckContext } from './context.js'
import { CheckSkipped } from './expect.js'
import { type CheckResult, type Report, summarize } from './report.js'
import type { ConformanceTarget } from './target.js'
import { within } from './until.js'

export interface RunOptions {
  /** Ids, or the beginnings of ids up to a dot (`order`). Default: all. */
  readonly only?: readonly string[]
  /** Default: the kit's own. */
  readonly checks?: readonly Check[]
  /** How many checks run beside each other, where they may. Default 4. */
  readonly concurrency?: number
  /** Stop after the first failure. */
  readonly bail?: boolean
  readonly onResult?: (result: CheckResult) => void
  readonly signal?: AbortSignal
}

/** What the driver says of itself on the server that was found. */
export interface Subject {
  readonly driver: string
  readonly server: string
  readonly capabilities: Capabilities
}

/** Connects once, to learn what is to be checked. */
export async function examine(target: ConformanceTarget): Promise<Subject> {
  const bus: Bus = await target.connect({ logger: silentLogger })
  try {
    const { driver, server, capabilities } = bus
    return { driver, server, capabilities }
  } finally {
    await bus.close()
  }
}

export function newRunId(): string {
  return randomBytes(4).toString('hex')
}

/** @throws RangeError for a name that selects nothing */
export function select(only: readonly string[] | undefined, from: readonly Check[]): Check[] {
  if (!only || only.length === 0) return [...from]
  const picks = (name: string, id: string) => id === name || id.startsWith(`${name}.`)
  for (const name of only) {
    if (!from.some((check) => picks(name, check.id))) {
      throw new RangeError(`no check is called '${name}', and none begins so`)
    }
  }
  return from.filter((check) => only.some((name) => picks(name, check.id)))
}

/** Runs the checks against the target and reports each. A failed check is a result, never a rejection. */
export async function runConformance(
  target: ConformanceTarget,
  options: RunOptions = {},
): Promise<Report> {
  const started = performance.now()
  const subject = await examine(target)
  const chosen = select(options.only, options.checks ?? allChecks).filter(
    (check) => check.applies?.(subject.capabilities) ?? true,
  )
  const runId = newRunId()
  const results = new Map<string, CheckResult>()
  let stopped = false
  const runOne = async (check: Check) => {
    if (stopped || options.signal?.aborted) return
    const result = await runCheck(check, target, subject.capabilities, runId)
    results.set(check.id, result)
    if (result.status === 'failed' && options.bail) stopped = true
    options.onResult?.(result)
  }
  const concurrency = options.concurrency ?? 4
  await pool(of(chosen, undefined), concurrency, runOne)
  // These mostly wait, so many of them beside each other are still quiet.
  await pool(of(chosen, 'quiet'), concurrency * 2, runOne)
  await pool(of(chosen, 'alone'), 1, runOne)
  const ordered = chosen.flatMap((check) => results.get(check.id) ?? [])
  return summarize(target, subject, ordered, performance.now() - started)
}

function of(chosen: readonly Check[], schedule: Check['schedule']): Check[] {
  return chosen.filter((check) => check.schedule === schedule)
}

async function pool<T>(
  items: readonly T[],
  size: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const queue = [...items]
  const worker = async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await work(item)
  }
  await Promise.all(Array.from({ length: Math.max(1, size) }, worker))
}

/** Runs one check, and says what came of it. */
export async function runCheck(
  check: Check,
  target: ConformanceTarget,
  capabilities: Capabilities,
  runId = newRunId(),
): Promise<CheckResult> {
  const { id, title, area, ref } = check
  const base = { id, title, area, ref, ...(check.noLoss ? { noLoss: true } : {}) }
  if (check.applies && !check.applies(capabilities)) {
    return { ...base, status: 'skipped', ms: 0, reason: 'does not apply: the driver declares it' }
  }
  const reason = unmet(check, target.hooks ?? {}, capabilities)
  if (reason !== undefined) return { ...base, status: 'skipped', ms: 0, reason }
  const abort = new AbortController()
  const context = new CheckContext(target, capabilities, runId, id, abort.signal)
  const run = isUndeclared(check, capabilities) ? check.otherwise : check.run
  const started = performance.now()
  const outcome = async (): Promise<Pick<CheckResult, 'status' | 'reason'>> => {
    try {
      const limit = timeoutOf(check, target)
      await within(Promise.resolve(run?.call(check, context)), limit, 'the check to end')
      return { status: 'passed' }
    } catch (error) {
      abort.abort(error)
      if (error instanceof CheckSkipped) return { status: 'skipped', reason: error.message }
      return { status: 'failed', reason: explain(error) }
    }
  }
  const ended = await outcome()
  const ms = Math.round(performance.now() - started)
  await context.close()
  const { counts } = context
  return { ...base, ...ended, ms, ...(Object.keys(counts).length > 0 ? { counts } : {}) }
}

export function timeoutOf(check: Check, target: ConformanceTarget): number {
  return (check.timeoutMs ?? 30_000) * (target.tolerances?.slowness ?? 1)
}

function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  if (error.name === 'ConformanceFailure') return error.message
  // Not a finding of the check's own: where it came from helps.
  return error.stack ?? `${error.name}: ${error.message}`
}
