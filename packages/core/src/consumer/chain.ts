import type { ConsumeMiddleware } from '../api.js'
import { compose } from '../middleware/compose.js'
import { immediately } from '../middleware/immediately.js'
import { retryWith } from '../middleware/retry.js'
import { timeoutAfter } from '../middleware/timeout.js'
import { decode, validate } from '../payload.js'
import { isPromise, type MaybePromise } from '../promise.js'
import type { Topic } from '../topic.js'
import type { Context } from './context.js'
import type { Settings } from './settings.js'

type Chain = (context: Context) => MaybePromise<unknown>

/**
 * Everything that one attempt goes through, composed once: failure middleware of the user's own (the default policy is
 * applied by the runtime to what comes out of the chain), decoding and validation, the bus's and the subscription's middleware,
 * the timeout, the handler.
 */
export function buildChain(
  topic: Topic<never, unknown>,
  settings: Settings,
  busMiddleware: readonly ConsumeMiddleware[],
  handler: (payload: unknown, context: Context) => unknown,
  ordered: boolean,
  marker: string,
): Chain {
  const outer: ConsumeMiddleware[] = []
  if (settings.customDeadLetter) outer.push(settings.customDeadLetter)
  if (settings.customRetry) outer.push(settings.customRetry)
  else if (settings.customDeadLetter) outer.push(retryWith(settings.retry))
  if (!settings.customRetry && settings.retry.immediate > 0) outer.push(immediately(settings.retry))
  const inner = [...busMiddleware, ...settings.middleware]
  // A batch has one limit for the whole of it, from when its handler begins.
  if (settings.timeoutMs !== undefined && settings.batch === undefined) {
    inner.push(timeoutAfter(settings.timeoutMs, ordered))
  }

  const plain = (context: Context) => handler(context.payload, context) as MaybePromise<void>
  const handle = outer.length + inner.length === 0 ? plain : tracked(plain, marker)
  const rest = compose(inner, handle as never, outer.length) as unknown as Chain
  const decoded: Chain = (context) => {
    const payload = validate(topic, decode(topic, context.incoming.message.body), 'a message of')
    if (isPromise(payload)) {
      return payload.then((value) => {
        context.payload = value
        return rest(context)
      })
    }
    context.payload = payload
    return rest(context)
  }
  return compose(outer, decoded as never) as unknown as Chain
}

/** So many handler calls of a subscription are watched, then one in 64, until one is found out: then all. */
const watched = 1000

/**
 * Notes when the handler has ended, so that the runtime finds out if a middleware returned before: it forgot to await `next`,
 * and the message must not be acked yet. Middleware does so always or never, as a rule, so not every call is watched: it
 * costs a promise.
 */
function tracked(handle: (context: Context) => MaybePromise<void>, marker: string) {
  let calls = 0
  // Its name is for `calledFromHandler`: a promise that two wait for ends an async stack trace.
  const waits = {
    async [marker](context: Context, result: Promise<void>): Promise<void> {
      try {
        await result
      } finally {
        context.inner = undefined
      }
    },
  }
  const wait = waits[marker]!
  return (context: Context): MaybePromise<void> => {
    const result = handle(context)
    if (!isPromise(result)) return
    if (++calls > watched && (calls & 63) !== 0 && !context.host.hasty) return result
    const inner = wait(context, result)
    context.inner = inner
    // Should nobody await it, its failure is still the message's and not the process's.
    inner.catch(() => {})
    return inner
  }
}
