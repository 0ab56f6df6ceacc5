import type { ConsumeMiddleware } from '../api.js'
import type { Context } from '../consumer/context.js'
import { type Duration, toMs } from '../duration.js'
import { HandlerTimeoutError } from '../errors.js'
import { isPromise } from '../promise.js'

/**
 * Fails an attempt whose inner part takes longer: `ctx.signal` aborts and a HandlerTimeoutError is thrown. The inner part
 * itself can't be stopped. With `order: 'key'` the attempt therefore ends only when the inner part has ended too, so
 * that a key never has two handlers; heed the signal there.
 * @throws OptionError
 */
export function timeout(limit: Duration): ConsumeMiddleware {
  const ms = toMs(limit, 'timeout')
  return (context, next) => run(context as Context, next, ms, (context as Context).host.ordered)
}

export function timeoutAfter(ms: number, ordered: boolean): ConsumeMiddleware {
  return (context, next) => run(context as Context, next, ms, ordered)
}

function run(
  context: Context,
  next: (context: Context) => void | Promise<void>,
  ms: number,
  ordered: boolean,
): void | Promise<void> {
  const result = next(context)
  if (isPromise(result as Promise<void>))
    return limited([context], result as Promise<void>, ms, ordered)
}

/** Waits for `result`, but rejects (with `ordered`: once it has ended) if that takes longer. */
export function limited(
  contexts: readonly Context[],
  result: Promise<unknown>,
  ms: number,
  ordered: boolean,
): Promise<void> {
  const { topic, group, host } = contexts[0]!
  return new Promise((resolve, reject) => {
    let late: HandlerTimeoutError | undefined
    const timer = host.clock.setTimer(() => {
      late = new HandlerTimeoutError(
        `the handler of '${topic}' in group '${group}' took longer than ${ms} ms; ` +
          "heed ctx.signal, or raise the subscription's timeout",
      )
      for (const context of contexts) context.abort(late)
      if (ordered)
        host.logger.warn('a handler runs past its timeout; its key waits for it', { topic, group })
      else reject(late)
    }, ms)
    const watch = {
      async [host.marker]() {
        try {
          await result
          timer.cancel()
          late ? reject(late) : resolve()
        } catch (error) {
          timer.cancel()
          reject(late ?? error)
        }
      },
    }
    void watch[host.marker]?.()
  })
}
