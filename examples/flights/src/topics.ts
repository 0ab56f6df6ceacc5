import { type Codec, topic } from '@longshore/core'
import { z } from 'zod'

const airport = z.string().regex(/^[A-Z0-9]{3}$/)

const flightSchema = z.object({
  /** Its place in the stream: what duplicates and order are told by. */
  seq: z.int().nonnegative(),
  date: z.string(),
  origin: airport,
  destination: airport,
  /** Minutes; negative when early. */
  delay: z.int(),
  distance: z.int().positive(),
})

const alertSchema = z.object({ seq: z.int(), origin: airport, delay: z.int() })

export type Flight = z.infer<typeof flightSchema>
export type Alert = z.infer<typeof alertSchema>

/** Bytes that claim to be JSON: how a broken producer looks to consumers. */
const damagedJson: Codec<Uint8Array> = {
  contentType: 'application/json',
  encode: (bytes) => bytes.slice(),
  decode: (bytes) => bytes.slice(),
}

/** Names of their own for each run, so that a run on a shared broker starts clean. */
export function names(run: string) {
  return {
    flights: `flights-${run}`,
    alerts: `flights-alerts-${run}`,
    delays: `delays-${run}`,
    routes: `routes-${run}`,
    desk: `desk-${run}`,
  }
}

export type Names = ReturnType<typeof names>

export function topics({ flights, alerts }: Names) {
  return {
    flights: topic(flights, { schema: flightSchema, key: (flight) => flight.origin }),
    /** The same destination without the schema, for producers that send rubbish. */
    damaged: topic(flights, { codec: damagedJson }),
    alerts: topic(alerts, { schema: alertSchema, key: (alert) => alert.origin }),
  }
}

export type Topics = ReturnType<typeof topics>
