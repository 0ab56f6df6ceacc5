import { OptionError, show } from './errors.js'

interface Listening {
  readonly callbacks: Set<() => void>
  readonly listener: () => void
}

const signals = new WeakMap<AbortSignal, Listening>()

/**
 * Calls back when the signal aborts; returns how to stop. However many there are, the signal itself gets one listener (Node
 * warns of more than ten), and none when nobody waits any more.
 */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  const listening = signals.get(signal) ?? listen(signal)
  const { callbacks, listener } = listening
  callbacks.add(callback)
  return () => {
    callbacks.delete(callback)
    if (callbacks.size > 0 || signals.get(signal) !== listening) return
    signals.delete(signal)
    signal.removeEventListener('abort', listener)
  }
}

function listen(signal: AbortSignal): Listening {
  const callbacks = new Set<() => void>()
  const listener = () => {
    for (const each of [...callbacks]) each()
  }
  const listening = { callbacks, listener }
  signal.addEventListener('abort', listener, { once: true })
  signals.set(signal, listening)
  return listening
}

/** One of another realm, as test environments with a DOM of their own have. */
function looksLikeOne(signal: unknown): boolean {
  const { aborted, addEventListener } = (signal ?? {}) as Partial<AbortSignal>
  return typeof aborted === 'boolean' && typeof addEventListener === 'function'
}

/** @throws OptionError */
export function checkSignal(where: string, signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal || looksLikeOne(signal)) return
  throw new OptionError(`${where}: signal is ${show(signal)}; it must be an AbortSignal`)
}
