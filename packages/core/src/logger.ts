import { OptionError } from './errors.js'

/** The few methods that Longshore asks of a logger; pino, winston, consola and `console` fit. */
export interface Logger {
  debug(message: string, details?: Record<string, unknown>): void
  info(message: string, details?: Record<string, unknown>): void
  warn(message: string, details?: Record<string, unknown>): void
  error(message: string, details?: Record<string, unknown>): void
}

const nothing = () => {}

export const silentLogger: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing }

const levels = ['debug', 'info', 'warn', 'error'] as const

/**
 * The same logger, whose failures are nobody's problem: what it throws (or rejects with) goes nowhere.
 * @throws OptionError if it lacks a method
 */
export function guardedLogger(logger: Logger): Logger {
  for (const level of levels) {
    if (typeof logger?.[level] === 'function') continue
    throw new OptionError(`a logger has the methods ${levels.join(', ')}; this one has no ${level}`)
  }
  const guard =
    (level: keyof Logger): Logger[typeof level] =>
    (message, details) => {
      // A broken logger must not break messaging, and there is nowhere to tell of it.
      try {
        const result: unknown = logger[level](message, details)
        if (result instanceof Promise) result.catch(() => {})
      } catch {}
    }
  return { debug: guard('debug'), info: guard('info'), warn: guard('warn'), error: guard('error') }
}

/** The default: warnings and errors go to the console, the rest nowhere. */
export const consoleLogger: Logger = {
  debug: nothing,
  info: nothing,
  warn: (message, details) => console.warn(`longshore: ${message}`, ...(details ? [details] : [])),
  error: (message, details) =>
    console.error(`longshore: ${message}`, ...(details ? [details] : [])),
}
