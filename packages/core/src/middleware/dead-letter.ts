import type { ConsumeMiddleware } from '../api.js'
import { exhaustedReason } from '../consumer/failure.js'

/** The default dead-letter policy as a middleware, to build your own around: whatever comes out is dead-lettered. */
export function deadLetter(): ConsumeMiddleware {
  return async function deadLetter(context, next) {
    try {
      await next(context)
    } catch (error) {
      await context.deadLetter(error, exhaustedReason(error))
    }
  }
}
