/**
 * @typedef {'BROKER_UNKNOWN' | 'BROKER_UNAVAILABLE' | 'BROKER_NOT_MANAGED' | 'BROKER_NOT_HEALTHY'
 *   | 'BROKER_NOT_RUNNING' | 'BROKER_BUSY' | 'BROKER_INTERRUPTED' | 'BROKER_INSTALL_FAILED'
 *   | 'BROKER_CONFIG' | 'BROKER_TOOL_FAILED'} BrokerErrorCode
 */

/** A failure of the launcher. The message is one line and ends with the cure. */
export class BrokerError extends Error {
  /**
   * @param {BrokerErrorCode} code stable, for programs
   * @param {string} message
   * @param {{ details?: string | undefined, cause?: unknown }} [options] `details`: lines of a log
   */
  constructor(code, message, options = {}) {
    super(message, options.cause === undefined ? {} : { cause: options.cause })
    this.name = 'BrokerError'
    this.code = code
    this.details = options.details
  }
}

/**
 * What went wrong with several brokers at once; `outcomes` tells which came up all the same.
 */
export class BrokersError extends AggregateError {
  /** @param {import('./types.mjs').Outcome[]} outcomes */
  constructor(outcomes) {
    const failed = outcomes.flatMap((outcome) =>
      outcome.error ? [{ name: outcome.name, error: outcome.error }] : [],
    )
    super(
      failed.map(({ error }) => error),
      failed.map(({ name, error }) => `${name}: ${error.message}`).join('; '),
    )
    this.name = 'BrokersError'
    this.code = failed[0]?.error.code ?? 'BROKER_UNAVAILABLE'
    this.outcomes = outcomes
  }
}

/**
 * @param {unknown} error
 * @returns {Error & { code?: string }}
 */
export function asError(error) {
  return error instanceof Error ? error : new Error(String(error))
}

/** @param {string} name */
export function noTool(name) {
  return new BrokerError('BROKER_UNAVAILABLE', `no tool is known here for ${name}; use its own`)
}

/** @param {AbortSignal | undefined} signal */
export function throwIfAborted(signal) {
  if (signal?.aborted) throw new BrokerError('BROKER_INTERRUPTED', 'interrupted; run it again')
}
