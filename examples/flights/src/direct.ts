/** The same figures straight from the file, without any messaging, to compare with. */
import type { Damaged } from './events.js'
import { type AirportStats, type AlertStats, alertAbove, link, type Results } from './results.js'
import type { Flight } from './topics.js'

function groupBy(flights: readonly Flight[], name: (flight: Flight) => string) {
  const groups = new Map<string, Flight[]>()
  for (const flight of flights) {
    const group = groups.get(name(flight))
    if (group === undefined) groups.set(name(flight), [flight])
    else group.push(flight)
  }
  return [...groups]
}

const max = (values: readonly number[]) => values.reduce((a, b) => Math.max(a, b))
const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)

function airport(flights: readonly Flight[]): AirportStats {
  return {
    count: flights.length,
    totalDelay: sum(flights.map(({ delay }) => delay)),
    maxDelay: max(flights.map(({ delay }) => delay)),
    chain: flights.reduce((chain, { seq }) => link(chain, seq), 0),
  }
}

function alert(flights: readonly Flight[]): AlertStats {
  return { count: flights.length, worst: max(flights.map(({ delay }) => delay)) }
}

export function computeDirectly(
  flights: readonly Flight[],
  damaged: readonly Damaged[],
): Results & { readonly alertCount: number } {
  const late = flights.filter(({ delay }) => delay > alertAbove)
  const letters = new Map(damaged.map(({ id, reason }) => [id, reason]))
  return {
    airports: new Map(
      groupBy(flights, ({ origin }) => origin).map(([name, own]) => [name, airport(own)]),
    ),
    routes: new Map(
      groupBy(flights, ({ origin, destination }) => `${origin}-${destination}`).map(
        ([name, own]) => [
          name,
          {
            count: own.length,
            totalDelay: sum(own.map(({ delay }) => delay)),
            distance: sum(own.map(({ distance }) => distance)),
          },
        ],
      ),
    ),
    alerts: new Map(groupBy(late, ({ origin }) => origin).map(([name, own]) => [name, alert(own)])),
    deadLetters: { delays: letters, routes: letters },
    alertCount: late.length,
  }
}
