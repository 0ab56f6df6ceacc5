import type { ConsumeMiddleware } from '../api.js'
import { isRetryable, type ResolvedRetry } from '../consumer/failure.js'
import { RetryLaterError } from '../retry-later.js'

/** Repeats a failing attempt at once, in the process, up to `immediate` times. */
export function immediately(policy: ResolvedRetry): ConsumeMiddleware {
  return async function immediately(context, next) {
    for (let left = policy.immediate; ; left--) {
      try {
        await (left === policy.immediate ? next(context) : next.again(context))
        return
      } catch (error) {
        const over = left === 0 || context.settled || context.signal.aborted
        if (over || error instanceof RetryLaterError || !isRetryable(policy, error)) throw error
      }
    }
  }
}
