/** The real input: flights of the United States in 2001, as the package `vega-datasets` ships them. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { Flight } from './topics.js'

/** A damaged copy of a flight: it must end in the dead letters of each group, with this reason. */
export interface Damaged {
  readonly id: string
  /** The flight that it is a copy of, and is published after. */
  readonly seq: number
  readonly key: string
  readonly reason: 'invalid' | 'undecodable'
  readonly body: Uint8Array
}

const require = createRequire(import.meta.url)

/** The first `count` flights in order of departure; past the end of the file it starts over. */
export function loadFlights(count: number): Flight[] {
  const file = join(dirname(require.resolve('vega-datasets')), '..', 'data', 'flights-20k.json')
  const rows = JSON.parse(readFileSync(file, 'utf8')) as Omit<Flight, 'seq'>[]
  return Array.from({ length: count }, (_, seq) => ({ seq, ...rows[seq % rows.length]! }))
}

type Damage = (flight: Flight) => Uint8Array

const json = (value: unknown) => Buffer.from(JSON.stringify(value))

const damages: readonly (readonly [Damaged['reason'], Damage])[] = [
  ['invalid', (flight) => json({ ...flight, delay: 'late' })],
  ['undecodable', (flight) => json(flight).subarray(0, 20)],
  ['invalid', ({ origin: _, ...rest }) => json(rest)],
  ['undecodable', () => Uint8Array.of(0x22, 0xc3, 0x28, 0x22)],
]

/** One damaged copy for each hundred flights, of each kind in turn; at least one of each. */
export function damage(flights: readonly Flight[]): Damaged[] {
  const step = Math.max(1, Math.min(100, Math.floor(flights.length / damages.length)))
  const damaged: Damaged[] = []
  for (let at = step - 1; at < flights.length; at += step) {
    const [reason, apply] = damages[damaged.length % damages.length]!
    const flight = flights[at]!
    const { seq, origin: key } = flight
    damaged.push({ id: `damaged-${seq}`, seq, key, reason, body: apply(flight) })
  }
  return damaged
}
