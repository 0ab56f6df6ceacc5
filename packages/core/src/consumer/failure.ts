import type { DeadLetterPolicy, RetryPolicy } from '../api.js'
import { type Clock, random } from '../clock.js'
import type { DeadLetterReason, Failure } from '../dead-letter.js'
import { toMs } from '../duration.js'
import { DecodeError, OptionError, PermanentError, ValidationError } from '../errors.js'
import { checkOptions, yesOrNo } from '../options.js'
import { RetryLaterError } from '../retry-later.js'

const retryOptions = [
  'attempts',
  'base',
  'factor',
  'max',
  'jitter',
  'immediate',
  'maxDeliveries',
  'retryable',
] as const

export interface ResolvedRetry {
  readonly attempts: number
  readonly baseMs: number
  readonly factor: number
  readonly maxMs: number
  readonly jitter: number | 'full'
  readonly immediate: number
  readonly maxDeliveries: number
  readonly retryable: (error: unknown) => boolean
}

/** @throws OptionError */
export function resolveRetry(policy: RetryPolicy = {}): ResolvedRetry {
  checkOptions('retry', policy, retryOptions)
  const baseMs = toMs(policy.base ?? 1000, 'retry.base')
  const resolved: ResolvedRetry = {
    attempts: policy.attempts ?? 5,
    baseMs,
    factor: policy.factor ?? 2,
    maxMs: toMs(policy.max ?? Math.max(300_000, baseMs), 'retry.max'),
    jitter: policy.jitter ?? 0.1,
    immediate: policy.immediate ?? 0,
    maxDeliveries: policy.maxDeliveries ?? 20,
    retryable: policy.retryable ?? worthRetrying,
  }
  if (typeof resolved.retryable !== 'function') {
    throw new OptionError('retry.retryable is a function (error) that returns a boolean')
  }
  whole('retry.attempts', resolved.attempts, 1)
  whole('retry.immediate', resolved.immediate, 0)
  whole('retry.maxDeliveries', resolved.maxDeliveries, 1)
  const { factor, jitter } = resolved
  if (!(factor >= 1 && Number.isFinite(factor))) {
    throw new OptionError(`retry.factor is ${factor}; it must be a number ≥ 1`)
  }
  if (jitter !== 'full' && !(jitter >= 0 && jitter <= 1)) {
    throw new OptionError(`retry.jitter is ${jitter}; it must be a share from 0 to 1, or 'full'`)
  }
  return resolved
}

/** @throws OptionError */
export function whole(option: string, value: unknown, least: number): void {
  if (Number.isSafeInteger(value) && Number(value) >= least) return
  throw new OptionError(`${option} is ${value}; it must be a whole number ≥ ${least}`)
}

function worthRetrying(error: unknown): boolean {
  return !(error instanceof PermanentError || isUnreadable(error))
}

/**
 * Milliseconds before the attempt after `attempt` (from 1): `min(max, base · factor^(attempt−1))`, then jitter, which never
 * passes `max`. Safe for any attempt number.
 */
export function backoff(policy: ResolvedRetry, attempt: number, clock: Clock): number {
  // The power overflows to Infinity, which min() cuts; 0 · Infinity would be NaN.
  const grown = policy.baseMs === 0 ? 0 : policy.baseMs * policy.factor ** (attempt - 1)
  const delay = Math.min(policy.maxMs, grown)
  if (policy.jitter === 'full') return delay * random(clock)
  return Math.min(policy.maxMs, delay * (1 + policy.jitter * (2 * random(clock) - 1)))
}

/** What can't be read says nothing of its key. */
export function isUnreadable(error: unknown): boolean {
  return error instanceof DecodeError || error instanceof ValidationError
}

/** What the retry policy says of a failed attempt. */
export type Decision =
  | { readonly retryInMs: number }
  | { readonly retryInMs: undefined; readonly reason: DeadLetterReason }

export function decide(
  policy: ResolvedRetry,
  attempt: number,
  error: unknown,
  clock: Clock,
): Decision {
  if (error instanceof RetryLaterError && !error.counted) return { retryInMs: error.delayMs }
  if (!isRetryable(policy, error)) return { retryInMs: undefined, reason: reasonOf(error) }
  if (attempt >= policy.attempts) return { retryInMs: undefined, reason: 'exhausted' }
  return {
    retryInMs: error instanceof RetryLaterError ? error.delayMs : backoff(policy, attempt, clock),
  }
}

/** A user's `retryable` that throws has no say. */
export function isRetryable(policy: ResolvedRetry, error: unknown): boolean {
  try {
    return policy.retryable(error)
  } catch {
    return worthRetrying(error)
  }
}

function reasonOf(error: unknown): DeadLetterReason {
  if (error instanceof DecodeError) return 'undecodable'
  if (error instanceof ValidationError) return 'invalid'
  return 'permanent'
}

/** The reason of an error that a retry policy let through. */
export function exhaustedReason(error: unknown): DeadLetterReason {
  return worthRetrying(error) ? 'exhausted' : reasonOf(error)
}

export interface ResolvedDeadLetter {
  readonly keep: boolean
  readonly maxStack: number
}

/** @throws OptionError */
export function resolveDeadLetter(policy: DeadLetterPolicy = {}): ResolvedDeadLetter {
  checkOptions('deadLetter', policy, ['keep', 'maxStack'])
  const resolved = { keep: policy.keep ?? true, maxStack: policy.maxStack ?? 4000 }
  whole('deadLetter.maxStack', resolved.maxStack, 0)
  yesOrNo('deadLetter.keep', resolved.keep)
  return resolved
}

/** The longest error message that a dead letter keeps, in characters. */
const maxMessage = 2000

export function describeFailure(
  error: Error,
  reason: DeadLetterReason,
  about: Pick<Failure, 'attempts' | 'topic' | 'group' | 'firstFailedAt' | 'lastFailedAt'>,
  maxStack: number,
): Failure {
  return {
    reason,
    errorName: printed(() => error.name),
    errorMessage: printed(() => error.message).slice(0, maxMessage),
    errorStack: maxStack === 0 ? '' : printed(() => error.stack ?? '').slice(0, maxStack),
    ...about,
  }
}

/** A property of a thrown thing as text, whatever its getter does. */
function printed(read: () => unknown): string {
  try {
    return String(read())
  } catch {
    return '(unreadable)'
  }
}
