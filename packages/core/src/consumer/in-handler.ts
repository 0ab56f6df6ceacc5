import { CloseInHandlerError } from '../errors.js'
import { isPromise, type MaybePromise } from '../promise.js'
import type { Context } from './context.js'

/** The name of the functions that run handlers; a stack that has it was called from a handler. */
export const marker = 'longshoreRunsHandler'

/**
 * Whether the caller is, or is awaited by, a handler. Read off the async stack trace, which costs nothing until it is
 * asked for (an AsyncLocalStorage would slow down every promise of the process on Node 20). It can't see through
 * callbacks, `Promise.race` and minifiers that rename functions; closing then runs into its timeout and says so.
 */
export function calledFromHandler(): boolean {
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = 200
  const { stack } = new Error('where?')
  Error.stackTraceLimit = limit
  return stack?.includes(marker) ?? false
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

/** Runs the chain and tells how it ended. A chain without a promise in it ends before this returns. */
export function runHandler(chain: Chain, context: Context, outcome: Outcome): void {
  let result: MaybePromise<unknown>
  try {
    result = marked[marker](chain, context)
  } catch (thrown) {
    return outcome.failed(context, thrown)
  }
  if (isPromise(result)) void awaiting[marker](result, context, outcome)
  else outcome.succeeded(context)
}

const marked = {
  [marker](chain: Chain, context: Context): MaybePromise<unknown> {
    return chain(context)
  },
}

const awaiting = {
  async [marker](result: Promise<unknown>, context: Context, outcome: Outcome): Promise<void> {
    try {
      await result
    } catch (thrown) {
      return outcome.failed(context, thrown)
    }
    outcome.succeeded(context)
  },
}
