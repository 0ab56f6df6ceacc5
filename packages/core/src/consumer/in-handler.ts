/** The name of the function that runs handlers; a stack that has it was called from a handler. */
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
