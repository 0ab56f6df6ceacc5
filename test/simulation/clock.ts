import type { Timer } from '@longshore/core'
import { VirtualClock } from '@longshore/core/testing'

/** More timers than this in one instant mean that time will never go on. */
const most = 20_000

export const live = new Map<unknown, string>()

/** A virtual clock that notices when time stands still though there is always something to do. */
export class WatchedClock extends VirtualClock {
  onStandstill: (() => void) | undefined
  #at = -1
  #set = 0

  override setTimer(callback: () => void, ms: number): Timer {
    const now = this.now()
    if (now !== this.#at) [this.#at, this.#set] = [now, 0]
    if (++this.#set === most) this.onStandstill?.()
    if (process.env.SIMDBG) {
      const stack = new Error('x').stack
      const run = () => {
        live.delete(run)
        callback()
      }
      live.set(run, `${now - Date.UTC(2026, 0, 1)} ${ms} ${stack}`)
      const t = super.setTimer(run, ms)
      const c = t.cancel
      t.cancel = () => {
        live.delete(run)
        c.call(t)
      }
      return t
    }
    return super.setTimer(callback, ms)
  }
}
