import { fail } from './expect.js'

export interface UntilOptions {
  /** Milliseconds. Default 10 s. */
  readonly deadline?: number
  /** What is waited for; a function is asked at the deadline and can tell how far it got. */
  readonly what: string | (() => string)
  readonly signal?: AbortSignal
}

const shortest = 4
const longest = 250

/** Resolves as soon as the condition holds; fails at the deadline. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  options: UntilOptions,
): Promise<void> {
  const deadline = options.deadline ?? 10_000
  const start = performance.now()
  for (;;) {
    const asked = performance.now()
    if (await condition()) return
    // A condition that asks the broker must not keep it busy.
    const took = performance.now() - asked
    if (options.signal?.aborted) throw options.signal.reason
    if (performance.now() - start >= deadline) {
      const what = typeof options.what === 'function' ? options.what() : options.what
      fail(`waited ${deadline} ms in vain for ${what}`)
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(longest, shortest + 2 * took)))
  }
}

/** The promise's result, or a failure at the deadline. */
export async function within<T>(promise: Promise<T>, deadline: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      try {
        fail(`waited ${deadline} ms in vain for ${what}`)
      } catch (error) {
        reject(error)
      }
    }, deadline)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

/** A promise and how to settle it. */
export interface Gate {
  readonly opened: Promise<void>
  open(): void
  readonly isOpen: boolean
}

export function gate(): Gate {
  let open = () => {}
  let isOpen = false
  const opened = new Promise<void>((resolve) => {
    open = () => {
      isOpen = true
      resolve()
    }
  })
  return {
    opened,
    open: () => open(),
    get isOpen() {
      return isOpen
    },
  }
}
