import { CloseInHandlerError } from '../errors.js'
import { isPromise, type MaybePromise } from '../promise.js'
import type { Context } from './context.js'

let consumers = 0

/** A function name of a consumer's own: a stack that has it was called from one of this consumer's handlers. */
export function newMarker(): string {
  return `longshoreRunsHandler$${++consumers}$`
}

/**
 * Whether the caller is, or is awaited by, a handler of one of these consumers. Read off the async stack trace, which costs
 * nothing until it is asked for (an AsyncLocalStorage would slow down every promise of the process on Node 20). It can't see
 * through callbacks, `Promise.race` and `Promise` constructors; closing then runs into its timeout and says so.
 */
export function calledFromHandler(markers: readonly string[]): boolean {
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = 200
  const { stack = '' } = new Error('where?')
  Error.stackTraceLimit = limit
  return markers.some((marker) => stack.includes(marker))
}

export function closeInHandler(): CloseInHandlerError {
  return new CloseInHandlerError(
    'close() was called by a handler, and would wait for that handler; let it return first, ' +
      'for instance: setImmediate(() => bus.close())',
  )
}

export interface Outcome {
  succeeded(context: Context): void
  failed(context: Context, thrown: unknown): void
}

type Chain = (context: Context) => MaybePromise<unknown>

/** Once per subscription: somebody should mend it. */
function tellHasty({ host, topic, group }: Context): void {
  if (host.hasty) return
  host.hasty = true
  host.logger.warn(
    'a middleware returned before next() had ended; await or return what next() gives',
    {
      topic,
      group,
    },
  )
}

/**
 * A function that runs the chain and tells how it ended. A chain without a promise in it ends before this returns. Made once
 * per consumer: its parts bear the marker as their names.
 */
export function handlerRunner(
  marker: string,
  chain: Chain,
  outcome: Outcome,
): (context: Context) => void {
  const marked = {
    [marker](context: Context): MaybePromise<unknown> {
      return chain(context)
    },
  }
  const awaiting = {
    async [marker](result: Promise<unknown>, context: Context): Promise<void> {
      try {
        await result
        // A middleware that didn't await next() is over before its handler: what counts is the handler.
        while (context.inner !== undefined) {
          tellHasty(context)
          await context.inner
        }
      } catch (thrown) {
        return outcome.failed(context, thrown)
      }
      outcome.succeeded(context)
    },
  }
  const start = marked[marker]!
  const wait = awaiting[marker]!
  return (context) => {
    let result: MaybePromise<unknown>
    let pending: boolean
    try {
      result = start(context)
      pending = isPromise(result)
      if (!pending && context.inner !== undefined) {
        tellHasty(context)
        result = context.inner
        pending = true
      }
    } catch (thrown) {
      return outcome.failed(context, thrown)
    }
    if (pending) void wait(result as Promise<unknown>, context)
    else outcome.succeeded(context)
  }
}
