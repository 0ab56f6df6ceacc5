import type { ConsumeMiddleware } from '../api.js'
import type { Context } from '../consumer/context.js'
import { marker } from '../consumer/in-handler.js'
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
  if (!isPromise(result as Promise<void>)) return
  return new Promise((resolve, reject) => {
    let late: HandlerTimeoutError | undefined
    const timer = context.host.clock.setTimer(() => {
      late = new HandlerTimeoutError(
        `the handler of '${context.topic}' in group '${context.group}' took longer than ${ms} ms; ` +
          "heed ctx.signal, or raise the subscription's timeout",
      )
      context.abort(late)
      if (!ordered) reject(late)
    }, ms)
    const watch = {
      async [marker]() {
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
    void watch[marker]?.()
  })
}
