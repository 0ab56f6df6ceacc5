import type { VirtualClock } from '@longshore/core/testing'
import type { Random } from './random.js'
import type { Trace } from './trace.js'

/** A place where a driver is called. */
export type Point =
  | 'subscribe'
  | 'ack'
  | 'retry'
  | 'dead-letter'
  | 'release'
  | 'stop'
  | 'leave'
  | 'close'
  | 'circuit'

/** What happens at a call: before it takes effect, or after. */
type Mishap =
  | 'slow-before'
  | 'slow-after'
  | 'throw-before'
  | 'throw-after'
  | 'cut-before'
  | 'cut-after'
  | 'crash-before'
  | 'crash-after'

const mishaps: Readonly<Record<Mishap, number>> = {
  'slow-before': 4,
  'slow-after': 4,
  'throw-before': 4,
  'throw-after': 3,
  'cut-before': 1,
  'cut-after': 1,
  'crash-before': 1,
  'crash-after': 1,
}

/** Calls that need not return a promise, and so may throw at once too. */
const mayThrow: ReadonlySet<Point> = new Set(['ack', 'retry', 'dead-letter', 'release'])

/** Whose call it is, and how to hurt it. */
export interface Victim {
  readonly name: string
  cut(): void
  crash(): void
}

/** Decides, by seed, what goes wrong at each call of a driver. */
export class Chaos {
  active = true
  count = 0

  constructor(
    readonly random: Random,
    private readonly rate: number,
    private readonly clock: VirtualClock,
    private readonly trace: Trace,
  ) {}

  strikes(): boolean {
    if (!this.active || this.rate === 0 || !this.random.chance(this.rate)) return false
    this.count++
    return true
  }

  pause(): Promise<void> {
    const ms = this.random.int(1, this.random.chance(0.2) ? 1500 : 100)
    return new Promise((resolve) => void this.clock.setTimer(resolve, ms))
  }

  /** Runs the effect of a call, perhaps not at once, perhaps not, perhaps without the caller learning of it. */
  around<T>(point: Point, victim: Victim, effect: () => T | Promise<T>): T | Promise<T> {
    if (!this.strikes()) return effect()
    const drawn = this.random.weighted(mishaps)
    // A hand-back that failed has not happened: the contract says so, and the runtime goes on with the deliveries.
    const mishap = point === 'release' && drawn === 'throw-after' ? 'throw-before' : drawn
    this.trace.add(`chaos ${mishap} at ${point} of ${victim.name}`)
    if (mishap === 'throw-before' && mayThrow.has(point) && this.random.chance(0.5)) {
      throw new Error(`chaos at ${point}`)
    }
    return this.#suffer(mishap, point, victim, effect)
  }

  async #suffer<T>(
    mishap: Mishap,
    point: Point,
    victim: Victim,
    effect: () => T | Promise<T>,
  ): Promise<T> {
    if (mishap === 'slow-before') await this.pause()
    if (mishap === 'throw-before') throw new Error(`chaos before ${point}`)
    if (mishap === 'cut-before') victim.cut()
    if (mishap === 'crash-before') victim.crash()
    const result = await effect()
    if (mishap === 'slow-after') await this.pause()
    if (mishap === 'throw-after') throw new Error(`chaos after ${point}`)
    if (mishap === 'cut-after') victim.cut()
    if (mishap === 'crash-after') victim.crash()
    return result
  }
}
