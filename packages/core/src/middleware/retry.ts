import type { ConsumeMiddleware, RetryPolicy } from '../api.js'
import type { Context } from '../consumer/context.js'
import { decide, type ResolvedRetry, resolveRetry } from '../consumer/failure.js'

/**
 * The default retry policy as a middleware, to build your own around: a failed attempt becomes a later delivery; what is
 * permanent or used up is thrown on. (`immediate` and `maxDeliveries` are the subscription's business and ignored here.)
 * @throws OptionError
 */
export function retry(
  policy: Omit<RetryPolicy, 'immediate' | 'maxDeliveries'> = {},
): ConsumeMiddleware {
  return retryWith(resolveRetry(policy))
}

export function retryWith(policy: ResolvedRetry): ConsumeMiddleware {
  return async function retry(context, next) {
    try {
      await next(context)
    } catch (error) {
      const { clock } = (context as Context).host
      const decision = decide(policy, context.attempt, error, clock)
      if (decision.retryInMs === undefined) throw error
      await context.retry(decision.retryInMs, error)
    }
  }
}
