import type { KillSwitch as Options } from '../api.js'
import type { Clock } from '../clock.js'
import { toMs } from '../duration.js'
import { OptionError } from '../errors.js'
import { checkOptions } from '../options.js'
import { whole } from './failure.js'

/** Counts attempts over a sliding window (two half-windows, so that nothing is kept per attempt). */
export class KillSwitch {
  readonly pauseMs: number
  readonly #rate: number
  readonly #minimum: number
  readonly #halfMs: number
  #startedAt = 0
  #current = { good: 0, bad: 0 }
  #previous = { good: 0, bad: 0 }

  /** @throws OptionError */
  constructor(
    options: Options,
    private readonly clock: Clock,
  ) {
    checkOptions('killSwitch', options, ['failureRate', 'minimum', 'window', 'pause'])
    this.#rate = options.failureRate ?? 0.5
    this.#minimum = options.minimum ?? 20
    this.#halfMs = toMs(options.window ?? 10_000, 'killSwitch.window') / 2
    this.pauseMs = toMs(options.pause ?? 30_000, 'killSwitch.pause')
    if (!(this.#rate > 0 && this.#rate <= 1)) {
      throw new OptionError(
        `killSwitch.failureRate is ${this.#rate}; it must be above 0 and at most 1`,
      )
    }
    whole('killSwitch.minimum', this.#minimum, 1)
  }

  /** Share of failed attempts in the window, 0 to 1. */
  get failureRate(): number {
    const bad = this.#current.bad + this.#previous.bad
    const all = bad + this.#current.good + this.#previous.good
    return all === 0 ? 0 : bad / all
  }

  /** Counts an attempt; true if the switch must trip now. */
  record(succeeded: boolean): boolean {
    this.#turn()
    if (succeeded) this.#current.good++
    else this.#current.bad++
    if (succeeded) return false
    const { good, bad } = this.#current
    const all = good + bad + this.#previous.good + this.#previous.bad
    return all >= this.#minimum && this.failureRate >= this.#rate
  }

  reset(): void {
    this.#current = { good: 0, bad: 0 }
    this.#previous = { good: 0, bad: 0 }
  }

  #turn(): void {
    const now = this.clock.now()
    const halves = Math.floor((now - this.#startedAt) / Math.max(1, this.#halfMs))
    if (halves === 0) return
    this.#previous = halves === 1 ? this.#current : { good: 0, bad: 0 }
    this.#current = { good: 0, bad: 0 }
    this.#startedAt = now
  }
}
