import type { Timer } from '@longshore/core'
import { VirtualClock } from '@longshore/core/testing'

/** More timers than this in one instant mean that time will never go on. */
const most = 20_000

/** A virtual clock that notices when time stands still though there is always something to do. */
export class WatchedClock extends VirtualClock {
  onStandstill: (() => void) | undefined
  #at = -1
  #set = 0

  override setTimer(callback: () => void, ms: number): Timer {
    const now = this.now()
    if (now !== this.#at) [this.#at, this.#set] = [now, 0]
    if (++this.#set === most) this.onStandstill?.()
    return super.setTimer(callback, ms)
  }
}
