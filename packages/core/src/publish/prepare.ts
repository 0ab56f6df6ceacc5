import { checkSignal } from '../abort.js'
import type { MessageOptions, PublishOptions } from '../api.js'
import type { Clock } from '../clock.js'
import type { Driver } from '../driver.js'
import { toMs } from '../duration.js'
import { OptionError, show, TooLargeError, toError } from '../errors.js'
import { checkHeaders, isPrintable } from '../headers.js'
import { type Headers, newId, noHeaders, type WireMessage } from '../message.js'
import { encode, validate } from '../payload.js'
import { isPromise, type MaybePromise } from '../promise.js'
import { checkRoute } from '../routes.js'
import { unsupported } from '../support.js'
import type { Topic } from '../topic.js'
import type { SendOptions } from './entry.js'

type SharedOptions = Pick<PublishOptions, 'deadline' | 'signal'>

/** Turns what users give into what drivers take; whatever is wrong is a typed error before anything is sent. */
export class Preparer {
  /** For the usual case: no option that concerns sending. */
  readonly #plain: SendOptions

  constructor(
    private readonly driver: Driver,
    private readonly clock: Clock,
    private readonly deadlineMs: number,
  ) {
    this.#plain = {
      delayMs: 0,
      priority: undefined,
      ttlMs: undefined,
      route: undefined,
      deadlineMs,
      signal: undefined,
    }
  }

  /** @throws OptionError, UnsupportedError */
  sendOptions(options: MessageOptions, shared: SharedOptions): SendOptions {
    const { at, delay, priority, ttl, route } = options
    const { deadline, signal } = shared
    if (
      at === undefined &&
      delay === undefined &&
      priority === undefined &&
      ttl === undefined &&
      route === undefined &&
      deadline === undefined &&
      signal === undefined
    ) {
      return this.#plain
    }
    checkSignal('publish', signal)
    return {
      delayMs: this.#delay(options),
      priority: this.#priority(priority),
      ttlMs: this.#ttl(ttl),
      route: route === undefined ? undefined : checkRoute(this.driver, route),
      deadlineMs: deadline === undefined ? this.deadlineMs : toMs(deadline, 'deadline'),
      signal,
    }
  }

  #delay({ at, delay }: MessageOptions): number {
    if (at === undefined && delay === undefined) return 0
    if (at !== undefined && delay !== undefined) {
      throw new OptionError("give either 'delay' or 'at', not both")
    }
    const longest = this.driver.capabilities.delay
    if (longest === 0) {
      throw unsupported(this.driver, 'delay', "delayed publishing (option 'delay' or 'at')")
    }
    const delayMs = delay === undefined ? this.#until(at) : toMs(delay, 'delay')
    if (delayMs > longest) {
      const what = `a delay of ${delayMs} ms; its longest is ${longest} ms`
      throw unsupported(this.driver, 'delay', what)
    }
    return delayMs
  }

  #until(at: unknown): number {
    if (at instanceof Date && !Number.isNaN(at.getTime())) {
      return Math.max(0, at.getTime() - this.clock.now())
    }
    throw new OptionError("'at' must be a valid Date")
  }

  #priority(priority: number | undefined): number | undefined {
    if (priority === undefined) return undefined
    const levels = this.driver.capabilities.priority
    if (levels === 0) throw unsupported(this.driver, 'priority', "option 'priority'")
    if (Number.isInteger(priority) && priority >= 0 && priority < levels) return priority
    throw new OptionError(
      `priority is ${priority}; ${this.driver.name} has the levels 0 to ${levels - 1}`,
    )
  }

  #ttl(ttl: MessageOptions['ttl']): number | undefined {
    if (ttl === undefined) return undefined
    if (!this.driver.capabilities.ttl) throw unsupported(this.driver, 'ttl', "option 'ttl'")
    const ttlMs = toMs(ttl, 'ttl')
    if (ttlMs > 0) return ttlMs
    throw new OptionError(
      'a ttl of 0 would drop the message at once; leave it out to keep the message',
    )
  }

  /**
   * The message to send. A schema is asked for its opinion only: the input is what is sent, and the consumer's schema makes
   * its output of it.
   * @throws (or rejects with) ValidationError, EncodeError, TooLargeError, HeaderError, OptionError
   */
  message<In, Out>(
    topic: Topic<In, Out>,
    payload: In,
    options: MessageOptions,
    headers: Headers | undefined,
    id?: string,
  ): MaybePromise<WireMessage> {
    if (topic.schema === undefined) return this.#build(topic, payload, options, headers, id)
    const valid = validate(topic as unknown as Topic<never, unknown>, payload, 'publishing to')
    if (isPromise(valid)) return valid.then(() => this.#build(topic, payload, options, headers, id))
    return this.#build(topic, payload, options, headers, id)
  }

  #build<In, Out>(
    topic: Topic<In, Out>,
    payload: In,
    options: MessageOptions,
    headers: Headers | undefined,
    givenId: string | undefined,
  ): WireMessage {
    const { capabilities, name } = this.driver
    const body = encode(topic as Topic<In, never>, payload)
    if (body.byteLength > capabilities.maxBytes) {
      throw new TooLargeError(
        `publish('${topic.name}'): the body has ${body.byteLength} bytes, ${name} takes ${capabilities.maxBytes}; ` +
          'send a reference to the data instead, or raise the limit of driver and server',
      )
    }
    const timestamp = this.clock.now()
    const { correlationId, causationId } = options
    const id = givenId ?? options.id
    if (id !== undefined) checkId(topic.name, 'id', id)
    if (correlationId !== undefined) checkId(topic.name, 'correlationId', correlationId)
    if (causationId !== undefined) checkId(topic.name, 'causationId', causationId)
    const charset = capabilities.headerCharset
    return {
      id: id ?? newId(timestamp),
      topic: topic.name,
      key: this.key(topic, payload, options),
      body,
      headers: headers === undefined ? noHeaders : checkHeaders(headers, charset, name),
      contentType: topic.codec.contentType,
      timestamp,
      correlationId,
      causationId,
    }
  }

  /** @throws OptionError */
  key<In, Out>(topic: Topic<In, Out>, payload: In, options: MessageOptions): string | undefined {
    if (options.key !== undefined) return checkKey(topic.name, options.key)
    if (topic.key === undefined) return undefined
    let key: string | undefined
    try {
      key = topic.key(payload)
    } catch (thrown) {
      throw new OptionError(
        `publish('${topic.name}'): the topic's key function threw: ${toError(thrown).message}`,
        { cause: thrown },
      )
    }
    return key === undefined ? undefined : checkKey(topic.name, key)
  }
}

/** Ids travel in AMQP properties and NATS headers: 1 to 255 bytes of UTF-8 (an AMQP short string), no control characters. */
function checkId(topic: string, option: string, id: unknown): void {
  if (typeof id === 'string' && id.length > 0 && isPrintable(id) && Buffer.byteLength(id) <= 255)
    return
  throw new OptionError(
    `publish('${topic}'): ${option} is ${show(id)}; it must be 1 to 255 bytes of printable text`,
  )
}

/** Keys travel in headers and as Kafka keys: 1 to 1,024 characters, no control characters. */
function checkKey(topic: string, key: unknown): string {
  if (typeof key === 'string' && key.length > 0 && key.length <= 1024 && isPrintable(key))
    return key
  throw new OptionError(
    `publish('${topic}'): the key is ${show(key)}; it must be a string of 1 to 1,024 printable characters, not empty`,
  )
}
