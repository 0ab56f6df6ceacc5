import { type Clock, systemClock, type Timer } from '@longshore/core'

/** A clock whose timers can be held back: its process seems to hang, though the event loop turns. */
export class FreezableClock implements Clock {
  #frozen = false
  readonly #held = new Set<() => void>()

  now(): number {
    return systemClock.now()
  }

  setTimer(callback: () => void, ms: number, keepAlive?: boolean): Timer {
    const run = () => {
      if (this.#frozen) this.#held.add(callback)
      else callback()
    }
    const timer = systemClock.setTimer(run, ms, keepAlive)
    return {
      cancel: () => {
        this.#held.delete(callback)
        timer.cancel()
      },
    }
  }

  freeze(): void {
    this.#frozen = true
  }

  /** What was held back runs now. */
  thaw(): void {
    this.#frozen = false
    const held = [...this.#held]
    this.#held.clear()
    for (const callback of held) callback()
  }
}
