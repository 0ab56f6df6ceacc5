import type { Failure } from '@longshore/core'
import {
  encodeFailure,
  type Headers,
  type IncomingDelivery,
  newId,
  noHeaders,
  reservedPrefix,
  type WireMessage,
} from '@longshore/core/driver'
import type { ConsumeMessage, Message, MessageProperties, Options } from 'amqplib'
import { headerBytes, sizeOf, type Table } from './header-size.js'
import type { Intake } from './intake.js'
import { slotOf } from './settings.js'

const header = {
  key: 'longshore-key',
  slot: 'longshore-slot',
  /** AMQP's timestamp has seconds only; these are the milliseconds beside it. */
  milliseconds: 'longshore-ms',
  causation: 'longshore-causation',
  attempt: 'longshore-attempt',
  firstFailed: 'longshore-first-failed',
  /** Dead letters only; goes with the rest of their record when they are redriven. */
  place: 'longshore-dl-place',
} as const

/** Users' headers whose names mean something to RabbitMQ or to its client travel under this prefix. */
const escapePrefix = 'longshore-header-'
const brokerNames = new Set([
  'CC',
  'BCC',
  'x-death',
  'x-delivery-count',
  'x-acquired-count',
  '__proto__',
])
const brokerPattern = /^x-(?:first|last)-death-/

const isBrokers = (name: string) => brokerNames.has(name) || brokerPattern.test(name)

/** AMQP properties and headers of a message of ours. */
export function propertiesOf(message: WireMessage): Options.Publish {
  const { key, timestamp, causationId } = message
  const headers: Table = {}
  if (message.headers !== noHeaders) {
    for (const name of Object.keys(message.headers)) {
      headers[isBrokers(name) ? escapePrefix + name : name] = message.headers[name]
    }
  }
  const seconds = Math.floor(timestamp / 1000)
  headers[header.milliseconds] = timestamp - seconds * 1000
  if (key !== undefined) {
    headers[header.key] = key
    headers[header.slot] = slotOf(key)
  }
  if (causationId !== undefined) headers[header.causation] = causationId
  const properties: Options.Publish = {
    deliveryMode: 2,
    messageId: message.id,
    contentType: message.contentType,
    timestamp: seconds,
    headers,
  }
  if (message.correlationId !== undefined) properties.correlationId = message.correlationId
  return properties
}

/** The client wants a Buffer. */
export function bufferOf(body: Uint8Array): Buffer {
  return Buffer.isBuffer(body) ? body : Buffer.from(body.buffer, body.byteOffset, body.byteLength)
}

// --- Reading ---

/** Of a foreign message every property may be missing. */
export function messageOf(topic: string, { content, properties }: Message): WireMessage {
  const headers: Table = properties.headers ?? {}
  const key = headers[header.key]
  const causation = headers[header.causation]
  return {
    // AMQP gives a message no coordinates of its own: without an id each delivery gets a new one.
    id: properties.messageId || newId(),
    topic,
    key: typeof key === 'string' ? key : undefined,
    body: content,
    headers: userHeaders(headers),
    contentType: properties.contentType ?? 'application/octet-stream',
    timestamp: timeOf(properties, headers[header.milliseconds]),
    correlationId: properties.correlationId ?? undefined,
    causationId: typeof causation === 'string' ? causation : undefined,
  }
}

function timeOf({ timestamp }: MessageProperties, milliseconds: unknown): number {
  if (typeof timestamp !== 'number') return Date.now()
  return timestamp * 1000 + (typeof milliseconds === 'number' ? milliseconds : 0)
}

function userHeaders(table: Table): Headers {
  let own: Record<string, string> | undefined
  for (const name of Object.keys(table)) {
    let shown = name
    if (name.startsWith(reservedPrefix)) {
      if (!name.startsWith(escapePrefix)) continue
      shown = name.slice(escapePrefix.length)
    } else if (isBrokers(name)) {
      continue
    }
    own ??= {}
    const value = textOf(table[name])
    if (shown === '__proto__') Object.defineProperty(own, shown, { value, enumerable: true })
    else own[shown] = value
  }
  return own === undefined ? noHeaders : Object.freeze(own)
}

/** AMQP headers have types; ours are strings. */
function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (Buffer.isBuffer(value)) return value.toString()
  if (value !== null && typeof value === 'object') return JSON.stringify(value)
  return String(value)
}

/** A message in this member's hands. */
export class Delivery implements IncomingDelivery {
  readonly message: WireMessage
  readonly attempt: number
  readonly deliveries: number
  readonly firstFailedAt: number | undefined
  readonly tag: number
  /** The core knows of it. */
  seen = false

  constructor(
    topic: string,
    readonly intake: Intake,
    readonly raw: ConsumeMessage,
  ) {
    const headers: Table = raw.properties.headers ?? {}
    this.message = messageOf(topic, raw)
    this.attempt = positive(headers[header.attempt]) ?? 1
    const before = positive(headers['x-delivery-count']) ?? 0
    const unseen = before === 0 ? 0 : intake.unseen.of(this.message.id, this.attempt)
    this.deliveries = Math.max(0, before - unseen) + 1
    this.firstFailedAt = positive(headers[header.firstFailed])
    this.tag = raw.fields.deliveryTag
  }
}

function positive(value: unknown): number | undefined {
  return typeof value === 'number' && value > 0 ? value : undefined
}

// --- Copies ---

/** The properties of a copy: as they came, foreign ones included, without what the broker and earlier failures added. */
function copied({ properties }: Message, id: string, more: Table): Options.Publish {
  const headers: Table = {}
  for (const [name, value] of Object.entries(properties.headers ?? {})) {
    if (isBrokers(name) || name.startsWith('longshore-dl-')) continue
    if (name === header.attempt || name === header.firstFailed) continue
    headers[name] = value
  }
  const { contentType, contentEncoding, priority, correlationId, replyTo, timestamp } = properties
  const { type, appId } = properties
  return {
    deliveryMode: 2,
    messageId: id,
    contentType,
    contentEncoding,
    priority,
    correlationId,
    replyTo,
    timestamp,
    type,
    appId,
    mandatory: true,
    headers: { ...headers, ...more },
  }
}

/** For the next attempt. */
export function retryCopy(
  { raw, message }: Delivery,
  attempt: number,
  firstFailedAt: number,
): Options.Publish {
  return copied(raw, message.id, { [header.attempt]: attempt, [header.firstFailed]: firstFailedAt })
}

/** For the dead letters. */
export function deadCopy({ raw, message }: Delivery, failure: Failure): Options.Publish {
  const place = newId()
  let record = failure
  for (;;) {
    const copy = copied(raw, message.id, { ...encodeFailure(record), [header.place]: place })
    if (sizeOf(copy.headers) <= headerBytes) return copy
    // What it was matters more than what is told of its failure.
    const { errorStack, errorMessage } = record
    if (errorStack !== '') record = { ...record, errorStack: half(errorStack) }
    else if (errorMessage !== '') record = { ...record, errorMessage: half(errorMessage) }
    else return copy
  }
}

const half = (text: string) => text.slice(0, text.length >> 1)

/** The same letter once more, with what it has of its failure. */
export function renewedCopy(raw: Message): Options.Publish {
  const kept = Object.entries(raw.properties.headers ?? {}).filter(([name]) => !isBrokers(name))
  return copied(raw, raw.properties.messageId || newId(), Object.fromEntries(kept))
}

/** Sorts dead letters by when they were stored; those of other programs come first. */
export function placeOf({ properties }: Message): string {
  const place: unknown = properties.headers?.[header.place]
  return typeof place === 'string' ? place : ''
}

/** From the dead letters back to the group, as if it came for the first time. */
export function redrivenCopy(raw: Message): Options.Publish {
  return copied(raw, raw.properties.messageId || newId(), {})
}
