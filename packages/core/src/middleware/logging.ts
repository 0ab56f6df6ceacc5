import type { ConsumeMiddleware } from '../api.js'
import { guardedLogger, type Logger } from '../logger.js'

/** Logs every attempt: its start at debug, its end at info, its failure at warn. Durations are milliseconds. */
export function logging(logger: Logger): ConsumeMiddleware {
  const log = guardedLogger(logger)
  return async function logging(context, next) {
    const { topic, group, attempt } = context
    const details = { id: context.message.id, topic, group, attempt }
    const startedAt = performance.now()
    const timed = () => {
      const durationMs = Math.round((performance.now() - startedAt) * 100) / 100
      return { ...details, durationMs }
    }
    log.debug('handling', details)
    try {
      await next(context)
    } catch (error) {
      if (context.settledBy === 'hand-back') log.debug('handed back', details)
      else log.warn('failed', { ...timed(), error })
      throw error
    }
    log.info('handled', timed())
  }
}
