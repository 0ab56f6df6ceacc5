import { onAbort } from './abort.js'

/** The source of time, so that tests can turn it by hand. All figures are milliseconds. */
export interface Clock {
  /** Epoch time. */
  now(): number
  /** Runs `callback` once, after `ms`. The timer keeps the process alive only if `keepAlive`. */
  setTimer(callback: () => void, ms: number, keepAlive?: boolean): Timer
  /** For jitter: from 0 to below 1. Default `Math.random`; a simulation that must replay gives its own. */
  random?(): number
}

export function random(clock: Clock): number {
  return clock.random?.() ?? Math.random()
}

export interface Timer {
  cancel(): void
}

/** Node fires timers above this at once; longer ones are chained. */
const longest = 2 ** 31 - 1

class SystemTimer implements Timer {
  #handle: NodeJS.Timeout

  constructor(callback: () => void, ms: number, keepAlive: boolean) {
    this.#handle = this.#start(callback, ms, keepAlive)
  }

  #start(callback: () => void, ms: number, keepAlive: boolean): NodeJS.Timeout {
    const handle =
      ms <= longest
        ? setTimeout(callback, Math.max(0, ms))
        : setTimeout(() => {
            this.#handle = this.#start(callback, ms - longest, keepAlive)
          }, longest)
    if (!keepAlive) handle.unref()
    return handle
  }

  cancel(): void {
    clearTimeout(this.#handle)
  }
}

export const systemClock: Clock = {
  now: () => Date.now(),
  setTimer: (callback, ms, keepAlive = true) => new SystemTimer(callback, ms, keepAlive),
}

/** What `step` comes to, if it comes within `ms`; rejects otherwise. */
export async function within<T>(clock: Clock, ms: number, step: Promise<T>): Promise<T> {
  let timer: Timer | undefined
  const late = new Promise<never>((_, reject) => {
    timer = clock.setTimer(() => reject(new Error(`no answer within ${ms} ms`)), ms)
  })
  try {
    return await Promise.race([step, late])
  } finally {
    timer?.cancel()
    // It may still fail later, when nobody waits for it any more.
    step.catch(() => {})
  }
}

/** Resolves after `ms`, or at once when the signal aborts. */
export function sleep(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve()
  return new Promise((resolve) => {
    const done = () => {
      timer.cancel()
      deafen()
      resolve()
    }
    const timer = clock.setTimer(done, ms)
    const deafen = onAbort(signal, done)
  })
}
