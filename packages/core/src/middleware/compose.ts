import type { Next } from '../api.js'
import { MiddlewareError } from '../errors.js'

type MaybePromise<T> = T | Promise<T>

/** How deep the chain was entered in this attempt; what finds a second `next`. */
export interface ChainContext {
  cursor: number
}

type Middleware<Context> = (context: Context, next: Next<Context>) => MaybePromise<void>
type Chain<Context> = (context: Context) => MaybePromise<void>

/**
 * Makes one function of middlewares and what they surround: the first is outermost. Composed once, it allocates nothing
 * per call.
 */
export function compose<Context>(
  middlewares: readonly Middleware<Context>[],
  innermost: Chain<Context & ChainContext>,
  from = 0,
): Chain<Context & ChainContext> {
  return middlewares.reduceRight<Chain<Context & ChainContext>>(
    (rest, middleware, i) => link(middleware, rest, from + i + 1),
    innermost,
  )
}

function link<Context>(
  middleware: Middleware<Context>,
  rest: Chain<Context & ChainContext>,
  position: number,
): Chain<Context & ChainContext> {
  const enter = (context: Context) => {
    const own = context as Context & ChainContext
    own.cursor = position
    return rest(own)
  }
  const next = (context: Context) => {
    const cursor = (context as Partial<ChainContext> | undefined)?.cursor
    if (cursor === undefined) {
      throw new MiddlewareError(
        `${nameOf(middleware)} must pass on the context that it got: next(context)`,
      )
    }
    if (cursor >= position) {
      throw new MiddlewareError(
        `${nameOf(middleware)} called next() twice in one attempt; call next.again(context) to run the rest once more on purpose`,
      )
    }
    return enter(context)
  }
  const complete: Next<Context> = Object.assign(next, { again: enter })
  return (context) => middleware(context, complete)
}

function nameOf(middleware: { name: string }): string {
  return middleware.name === '' ? 'a middleware' : `middleware '${middleware.name}'`
}
