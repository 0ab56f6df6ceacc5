import { type Clock, systemClock } from '../clock.js'

/** Steps in promises before timers and I/O get a turn. */
const steps = 256

/**
 * This broker answers within promises, and a loop of awaited publishes would never let timers or I/O run. So now and then
 * a step has to wait for the next turn of the event loop. Not on other clocks, whose owners decide what runs when.
 */
export class Breather {
  readonly #real: boolean
  #count = 0

  constructor(clock: Clock) {
    this.#real = clock === systemClock
  }

  due(): boolean {
    return this.#real && ++this.#count % steps === 0
  }
}
