import { PermanentError, RetryLaterError } from '@longshore/core'
import type { Failure, RetryRequest } from '@longshore/core/driver'
import type { Held, Ledger, Member, Run } from './ledger.js'
import type { GroupPlan } from './plan.js'

const describe = (run: Run) =>
  `#${run.held.n} in ${run.held.member.group.plan.id} at ${run.held.member.connection.name}, attempt ${run.attempt}`

const counted = (error: unknown) => !(error instanceof RetryLaterError && !error.counted)

/** Whether it's over for the order of its key: nothing of it runs any more. */
const over = (run: Run) => run.outcome !== 'running' && run.handlers === 0

/** A chain begins to run. */
export function begin(ledger: Ledger, held: Held, context: unknown, attempt: number): Run {
  const { member, n } = held
  const { group, connection } = member
  const { plan } = group
  const last = held.run
  ledger.trace.add(() => `run #${n} in ${plan.id} at ${connection.name}, attempt ${attempt}`)
  if (last !== undefined && last.context === context) {
    // Repeated at once, in the same attempt.
    if (++last.repeats > plan.immediate)
      ledger.fail('attempt', `${describe(last)}: ${last.repeats} repeats`)
    last.outcome = 'running'
    return last
  }
  const run: Run = {
    held,
    context,
    attempt,
    repeats: 0,
    outcome: 'running',
    error: undefined,
    handlers: 0,
    endedAt: 0,
    endedInClosing: false,
    explicit: undefined,
    explicitDelay: undefined,
  }
  held.run = run
  const expected =
    last === undefined ? held.delivery.attempt : last.attempt + (counted(last.error) ? 1 : 0)
  if (attempt !== expected) ledger.fail('attempt', `${describe(run)}: expected ${expected}`)
  if (attempt > plan.attempts) ledger.fail('attempt', `${describe(run)} of ${plan.attempts}`)
  if (last?.outcome === 'failed' && ledger.now() < last.endedAt + leastDelay(plan, last)) {
    ledger.fail('early', `${describe(run)}: the delay before it is not over`)
  }
  if (held.state !== 'held')
    ledger.fail('run-unheld', `${describe(run)}: the delivery is ${held.state}`)
  if (member.running >= plan.concurrency * (plan.mode === 'batch' ? plan.batchSize : 1)) {
    ledger.fail('concurrency', `${describe(run)}: ${member.running} run already`)
  }
  if (plan.onKeyFailure === 'park' && ledger.circuitState(group, held.key) === 'open') {
    ledger.fail('park', `${describe(run)}: the circuit of its key is open`)
  }
  if (plan.order === 'key' && held.key !== undefined) {
    enterKey(ledger, run, held.key)
    afterRedrive(ledger, run, held.key)
  }
  member.running++
  return run
}

/** `released`: it was gathered for a batch, no handler has seen it. */
const mayOverlap: ReadonlySet<Held['state']> = new Set(['revoked', 'crashed', 'released'])

function enterKey(ledger: Ledger, run: Run, key: string): void {
  const { active } = run.held.member.group
  const others = active.get(key) ?? new Set()
  active.set(key, others)
  for (const other of others) {
    if (over(other) || other.held.member.connection.dead) {
      others.delete(other)
    } else if (other.held.member === run.held.member && !leftBehind(other)) {
      ledger.fail(
        'overlap',
        `${describe(run)} beside ${describe(other)}, of one key and one consumer`,
      )
    } else if (!mayOverlap.has(other.held.state) && other.explicit === undefined) {
      ledger.fail(
        'overlap',
        `${describe(run)} beside ${describe(other)}, which is ${other.held.state}`,
      )
    }
  }
  others.add(run)
}

/** What was redriven together begins in its old order. */
function afterRedrive(ledger: Ledger, run: Run, key: string): void {
  const { fate, member } = run.held
  const { lastRedriven, plan } = member.group
  const { redriven: batch, order } = fate
  fate.redriven = undefined
  // With `skip`, failing gave it a new place.
  if (batch === undefined || plan.onKeyFailure === 'skip') return
  const last = lastRedriven.get(key)
  if (last?.batch === batch && order < last.order) {
    ledger.fail('redrive-order', `${describe(run)} begins after a later one of the same redrive`)
  }
  lastRedriven.set(key, { batch, order })
}

/** The runtime can't see the end of a loop's body, only that it settles its delivery, or has lost it. */
function leftBehind({ held, explicit }: Run): boolean {
  const { mode } = held.member.group.plan
  return mode === 'consume' && (explicit !== undefined || held.state !== 'held')
}

/** A chain has ended. */
export function end(ledger: Ledger, run: Run, failed: boolean, error: unknown): void {
  const { held } = run
  run.outcome = !failed ? 'ok' : isHandBack(error) ? 'handed-back' : 'failed'
  if (run.explicit !== 'fail') run.error = error
  run.endedAt = ledger.now()
  run.endedInClosing = held.member.connection.closing
  ledger.trace.add(() => `ended ${describe(run)}: ${run.outcome}`)
  if (run.outcome === 'failed') held.fate.everFailed = true
  if (run.outcome === 'ok' && run.explicit === undefined) succeeded(ledger, held)
}

/** The attempt is settled or repeated: its place is free. */
export function leave(run: Run): void {
  run.held.member.running--
}

const isHandBack = (error: unknown) =>
  error instanceof Error && error.constructor.name === 'HandBack'

/** A message was handled with success (first or again). */
export function succeeded(ledger: Ledger, held: Held): void {
  const { fate, key, n, member } = held
  const { group } = member
  if (fate.successes++ > 0) return
  if (group.plan.order !== 'key' || key === undefined) return
  if (fate.everDead || (group.plan.onKeyFailure === 'skip' && fate.everFailed)) return
  const { order } = fate
  const last = group.lastOfKey.get(key) ?? -1
  if (order < last) {
    const late = group.fates.findIndex((each) => each?.order === last)
    ledger.fail(
      'order',
      `#${n} of key ${key} in ${group.plan.id} is handled after #${late}, which came later`,
    )
  }
  group.lastOfKey.set(key, order)
}

// --- What the runtime asks of the driver ---

export function asksAck(ledger: Ledger, held: Held): void {
  asks(ledger, held, 'ack')
  const { run } = held
  if (run === undefined) return ledger.fail('ack-early', `#${held.n} is acked without having run`)
  if (run.outcome !== 'ok' && run.explicit !== 'ack') {
    ledger.fail('ack-early', `${describe(run)} is acked while ${run.outcome}`)
  }
}

export function asksRetry(ledger: Ledger, held: Held, request: RetryRequest): void {
  const repeated = held.calls > 0
  asks(ledger, held, 'retry')
  const { run } = held
  const { plan } = held.member.group
  if (run === undefined) return ledger.fail('retry', `#${held.n} is retried without having run`)
  if (run.outcome !== 'failed' && run.explicit === undefined) {
    ledger.fail('retry', `${describe(run)} is retried while ${run.outcome}`)
  }
  const error = run.explicit === 'retry' ? undefined : run.error
  const next = run.attempt + (counted(error) ? 1 : 0)
  if (request.attempt !== next)
    ledger.fail('attempt', `${describe(run)} is retried as ${request.attempt}`)
  if (
    (run.explicit === undefined || run.explicit === 'fail') &&
    counted(error) &&
    run.attempt >= plan.attempts
  ) {
    ledger.fail('attempt', `${describe(run)} is retried, but has ${plan.attempts} attempts`)
  }
  const hold = plan.order === 'key' && plan.onKeyFailure !== 'skip' && held.key !== undefined
  if (request.hold !== hold) ledger.fail('retry', `${describe(run)}: hold is ${request.hold}`)
  if (!repeated && request.delayMs < leastDelay(plan, run) - 1e-6) {
    ledger.fail('early', `${describe(run)} is retried in ${request.delayMs} ms`)
  }
  const most = Math.max(
    plan.max,
    run.explicitDelay ?? (error instanceof RetryLaterError ? error.delayMs : 0),
  )
  if (request.delayMs > most) ledger.fail('retry', `${describe(run)} waits ${request.delayMs} ms`)
}

/** The shortest pause that may follow a failed attempt. */
function leastDelay(plan: GroupPlan, run: Run): number {
  if (run.explicitDelay !== undefined) return run.explicitDelay
  if (run.error instanceof RetryLaterError) return run.error.delayMs
  if (plan.jitter === 'full') return 0
  return Math.min(plan.max, plan.base * plan.factor ** (run.attempt - 1)) * (1 - plan.jitter)
}

export function asksDeadLetter(ledger: Ledger, held: Held, failure: Failure): void {
  const repeated = held.calls > 0
  asks(ledger, held, 'dead-letter')
  const { run, member, delivery, n } = held
  const { plan } = member.group
  const { reason, attempts } = failure
  const what = run === undefined ? `#${n} in ${plan.id}` : describe(run)
  const wrong = (why: string) => ledger.fail('dead-letter', `${what} as '${reason}': ${why}`)
  if (failure.topic !== plan.topic || failure.group !== plan.name) wrong('of another group')
  if (delivery.firstFailedAt !== undefined && failure.firstFailedAt !== delivery.firstFailedAt) {
    wrong('its first failure was at another time')
  }
  if (failure.firstFailedAt > failure.lastFailedAt || failure.lastFailedAt > ledger.now())
    wrong('times')
  if (attempts !== (run?.attempt ?? delivery.attempt)) wrong(`${attempts} attempts are recorded`)
  if (run?.endedInClosing && reason !== 'requested') {
    ledger.fail('closing', `${what} is dead-lettered as '${reason}' because of closing`)
  }
  const failed = run !== undefined && (run.outcome === 'failed' || run.explicit === 'fail')
  switch (reason) {
    case 'exhausted':
      if (!failed || run.error instanceof PermanentError) wrong('it did not fail so')
      if (attempts !== plan.attempts) wrong(`after ${attempts} of ${plan.attempts} attempts`)
      break
    case 'permanent':
      if (!failed || !(run.error instanceof PermanentError)) wrong('it did not fail so')
      break
    case 'parked':
      if (plan.onKeyFailure !== 'park') wrong('it does not park')
      if (failed ? plan.coolDown === undefined : run !== undefined) wrong('it did not fail so')
      if (!failed && !repeated && ledger.circuitState(member.group, held.key) === 'closed') {
        ledger.fail('park', `${what} is parked, but the circuit of ${held.key} is closed`)
      }
      break
    case 'requested':
      if (run?.explicit !== 'dead-letter') wrong('nobody did')
      break
    case 'delivery-limit':
      if (run !== undefined || delivery.deliveries <= plan.maxDeliveries)
        wrong(`${delivery.deliveries} deliveries`)
      break
    case 'undecodable':
      if (run !== undefined || !ledger.sent[n]?.foreign) wrong('it can be decoded')
      break
    default:
      wrong('no such failure')
  }
}

export function asks(ledger: Ledger, held: Held, what: string): void {
  held.calls++
  if (held.underway) ledger.fail('settle-once', `#${held.n}: ${what} while it is being settled`)
  if (held.answered) ledger.fail('settle-once', `#${held.n}: ${what} after it was settled`)
  held.underway = true
}

/** The driver's answer reached the runtime. */
export function answered(ledger: Ledger, held: Held, taken: boolean): void {
  held.underway = false
  held.answered = true
  if (!taken && held.state === 'held') {
    ledger.fail('settle-once', `#${held.n} could not be settled, though its member holds it`)
  }
}

/** A member may hold no more than it asked for, and nothing after it has left. */
export function left(ledger: Ledger, member: Member): void {
  if (member.held > 0 && !member.connection.dead) {
    ledger.fail('leave', `${member.connection.name} left with ${member.held} deliveries`)
  }
}
