/** The three groups: what their handlers do, and how they fail. */
import type { Bus, Subscription } from '@longshore/core'
import { delayFailures, routeFailure } from './failures.js'
import type { Meter } from './meter.js'
import { alertAbove } from './results.js'
import { Seen, Tally } from './tally.js'
import type { Names, Topics } from './topics.js'

const retry = { base: 20, factor: 2, max: 200 } as const

export class Consumers {
  readonly results = new Tally()
  readonly delays = new Seen()
  readonly routes = new Seen()
  readonly alerts = new Seen()
  /** Until then some routes fail, however often they are tried. */
  repaired = false

  constructor(
    readonly bus: Bus,
    readonly topics: Topics,
    readonly names: Names,
    readonly meter: Meter,
  ) {}

  async start(): Promise<readonly Subscription[]> {
    return [await this.#delays(), await this.#routes(), await this.#desk()]
  }

  /** Statistics for each airport, in the order of departure; a failing flight holds its airport back. */
  #delays() {
    return this.bus.subscribe(
      this.topics.flights,
      {
        group: this.names.delays,
        concurrency: 50,
        order: 'key',
        onKeyFailure: 'block',
        retry: { attempts: 10, ...retry },
      },
      (flight, { attempt }) => {
        if (attempt <= delayFailures(flight.seq)) throw new Error('the statistics are locked')
        if (this.delays.first(flight.seq)) this.results.addDelay(flight)
      },
    )
  }

  /** Totals for each route, in any order; late flights go on to the alerts. */
  #routes() {
    return this.bus.subscribe(
      this.topics.flights,
      { group: this.names.routes, concurrency: 20, retry: { attempts: 3, ...retry } },
      async (flight, context) => {
        const { seq, origin, delay } = flight
        const failure = routeFailure(seq)
        if (failure === 'once' && context.attempt === 1) throw new Error('the table is busy')
        if (failure === 'until-repaired' && !this.repaired) throw new Error('no such route yet')
        if (delay > alertAbove) {
          // The id is not random: if this attempt is repeated, the alert is recognised.
          const id = `alert-${seq}`
          this.meter.publishing(id)
          await context.publish(this.topics.alerts, { seq, origin, delay }, { id })
        }
        if (this.routes.first(seq)) this.results.addRoute(flight)
      },
    )
  }

  #desk() {
    return this.bus.subscribe(
      this.topics.alerts,
      { group: this.names.desk, concurrency: 4, retry },
      (alert) => {
        if (this.alerts.first(alert.seq)) this.results.addAlert(alert)
      },
    )
  }
}
