import type { ConsumeMiddleware } from '../api.js'
import type { Logger } from '../logger.js'

/** Logs every attempt: its start at debug, its end at info, its failure at warn. Durations are milliseconds. */
export function logging(logger: Logger): ConsumeMiddleware {
  return async function logging(context, next) {
    const { topic, group, attempt } = context
    const details = { id: context.message.id, topic, group, attempt }
    const startedAt = performance.now()
    const durationMs = () => Math.round((performance.now() - startedAt) * 100) / 100
    logger.debug('handling', details)
    try {
      await next(context)
      logger.info('handled', { ...details, durationMs: durationMs() })
    } catch (error) {
      if (context.settledBy === 'hand-back') logger.debug('handed back', details)
      else logger.warn('failed', { ...details, durationMs: durationMs(), error })
      throw error
    }
  }
}
