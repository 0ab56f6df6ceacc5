import {
  AccessError,
  ConnectionError,
  HeaderError,
  type LongshoreError,
  NotFoundError,
  RejectedError,
  TooLargeError,
  UnsupportedError,
} from '@longshore/core'
import type { PublishFailure } from '@longshore/core/driver'
import type { Message } from 'amqplib'
import { codeOf, reply, textOf } from './errors.js'
import type { Unconfirmed, UnconfirmedWindow } from './unconfirmed.js'

/** Why the publishing channel ended, and what that says of the messages that were under way. */
export class Loss {
  /** The exchange that wasn't there, or may not be written to. */
  readonly missing: string | undefined
  readonly forbidden: string | undefined
  readonly #code: number | undefined
  readonly #text: string
  readonly #limit: number | undefined

  constructor(private readonly error: Error | undefined) {
    this.#code = error === undefined ? undefined : codeOf(error)
    this.#text = error === undefined ? '' : textOf(error)
    if (this.#code === reply.notFound) {
      this.missing = /no exchange '(.*?)' in vhost/.exec(this.#text)?.[1]
    }
    if (this.#code === reply.accessRefused) this.forbidden = forbiddenExchange(this.#text)
    const tooLarge = /message size \d+ is larger than configured max size (\d+)/.exec(this.#text)
    if (tooLarge !== null) this.#limit = Number(tooLarge[1])
  }

  /** Settles all of them. `never`: the broker surely took none for the forbidden exchange. */
  settle(window: UnconfirmedWindow, never: boolean): void {
    const items = window.drain()
    const culprit = this.missing ?? this.forbidden
    // The broker refused this one, or one before it, and took nothing afterwards.
    const last = items.findLast(({ exchange }) => exchange === culprit)
    const text = this.#text === '' ? '' : `: ${this.#text}`
    const lost = new ConnectionError(
      `the publishing channel ended before the broker confirmed${text}`,
      { cause: this.error },
    )
    for (const item of items) {
      const error = this.#refusal(item, never || item === last, items.length === 1)
      const unanswered = item === last ? 'unsent' : 'unknown'
      const failure: PublishFailure =
        error === undefined ? { outcome: unanswered, error: lost } : { outcome: 'rejected', error }
      item.settle(item.index, failure)
    }
  }

  #refusal(item: Unconfirmed, surely: boolean, alone: boolean): LongshoreError | undefined {
    if (this.#limit !== undefined && item.bytes > this.#limit) return overLimit(item, this.#limit)
    if (item.exchange === this.forbidden && surely) return noPermission(this.error, this.forbidden)
    // It can only be this one.
    const refusedOne = this.#code === reply.preconditionFailed && alone
    return refusedOne ? unacceptable(item, this.#text) : undefined
  }
}

/** The default exchange has a name of its own in errors. */
function forbiddenExchange(text: string): string | undefined {
  const name = /exchange '(.*?)' in vhost/.exec(text)?.[1]
  return name === 'amq.default' ? '' : name
}

export function unroutable({ id, exchange, routingKey, returned }: Unconfirmed): LongshoreError {
  return new NotFoundError(
    `message ${id} reached no queue (exchange '${exchange}', routing key '${routingKey}': ${returned}); ` +
      'subscribe a group first, or bind a queue, or turn off the option mandatory',
  )
}

export function refused(item: Unconfirmed): void {
  const error = new RejectedError(
    `RabbitMQ refused message ${item.id} (basic.nack): a queue behind exchange '${item.exchange}' is full or can't take it`,
    item.id,
  )
  item.settle(item.index, { outcome: 'rejected', error })
}

export function noteReturn(window: UnconfirmedWindow, { fields, properties }: Message): void {
  const { exchange, routingKey } = fields
  const { replyText } = fields as unknown as { replyText: string }
  for (const item of window) {
    if (item.returned !== undefined || item.id !== properties.messageId) continue
    if (item.exchange !== exchange || item.routingKey !== routingKey) continue
    item.returned = replyText
    return
  }
}

function unacceptable({ id }: Unconfirmed, text: string): LongshoreError {
  return new RejectedError(`RabbitMQ refused message ${id}: ${text}`, id)
}

function overLimit({ id, bytes }: Unconfirmed, limit: number): LongshoreError {
  return new TooLargeError(
    `message ${id}: the body has ${bytes} bytes, the server takes ${limit} (max_message_size); send a reference to the data ` +
      `instead, or raise the server's limit; with the option maxBytes: ${limit} it is refused before it is sent`,
  )
}

function noPermission(cause: unknown, exchange: string): LongshoreError {
  return new AccessError(
    `${textOf(cause)}; grant it with rabbitmqctl set_permissions (write permission on '${exchange}')`,
    { cause },
  )
}

/** Ten years: RabbitMQ closes the channel of a longer one. */
const longestTtl = 10 * 365 * 24 * 3600 * 1000

export function expirationOf(ttlMs: number): string {
  if (ttlMs <= longestTtl) return String(Math.ceil(ttlMs))
  throw new UnsupportedError(
    `a ttl of ${ttlMs} ms; RabbitMQ takes at most ${longestTtl} ms (ten years); leave it out to keep the message`,
    'ttl',
    'rabbitmq',
  )
}

export function delayedTtl(): LongshoreError {
  return new UnsupportedError(
    'a message with both delay and ttl: RabbitMQ would count its ttl while it is delayed; leave one of them out',
    'ttl',
    'rabbitmq',
  )
}

export function unencodable(error: unknown): LongshoreError {
  return new HeaderError(
    `AMQP can't hold this message's properties: ${(error as Error).message}; header names have at most 255 bytes, all headers together 64 KiB`,
    { cause: error },
  )
}
