import type {
  BatchEntry,
  BufferOptions,
  MessageOptions,
  PublishContext,
  Published,
  PublishMiddleware,
  PublishOptions,
  PublishOutcome,
} from '../api.js'
import type { Clock } from '../clock.js'
import type { Driver } from '../driver.js'
import { type Duration, toMs } from '../duration.js'
import { LongshoreError, OptionError, TooLargeError, toError, wrapDriverError } from '../errors.js'
import type { EventSources } from '../events.js'
import { checkHeaders } from '../headers.js'
import { type Headers, newId, noHeaders, type WireMessage } from '../message.js'
import { compose } from '../middleware/compose.js'
import { checkMiddleware, checkOptions } from '../options.js'
import { encode, validate } from '../payload.js'
import { isPromise, type MaybePromise } from '../promise.js'
import { unsupported } from '../support.js'
import type { Topic } from '../topic.js'
import { Outgoing, type SendOptions } from './outgoing.js'

const messageOptions = [
  'id',
  'key',
  'headers',
  'delay',
  'at',
  'priority',
  'ttl',
  'correlationId',
  'causationId',
] as const
const publishOptions = [...messageOptions, 'deadline', 'signal'] as const
const entryOptions = [...messageOptions, 'payload'] as const

const none: PublishOptions = Object.freeze({})

export interface PublisherOptions {
  readonly middleware?: readonly PublishMiddleware[]
  readonly buffer?: BufferOptions
  readonly deadline?: Duration
}

/** One publish on its way through the middleware. */
class Publication implements PublishContext {
  cursor = 0
  published: Published | undefined

  constructor(
    readonly of: Topic<never, never>,
    readonly id: string,
    readonly key: string | undefined,
    readonly payload: unknown,
    readonly headers: Record<string, string>,
    readonly delayMs: number,
    readonly correlationId: string | undefined,
    readonly causationId: string | undefined,
    readonly options: PublishOptions,
  ) {}

  get topic(): string {
    return this.of.name
  }
}

/** Turns payloads into messages and hands them to the outgoing buffer. */
export class Publisher {
  readonly outgoing: Outgoing
  readonly #deadlineMs: number
  readonly #chain: ((publication: Publication) => MaybePromise<void>) | undefined

  constructor(
    private readonly driver: Driver,
    private readonly clock: Clock,
    events: EventSources,
    options: PublisherOptions = {},
  ) {
    checkOptions('publish', options, ['middleware', 'buffer', 'deadline'])
    if (options.buffer)
      checkOptions('publish.buffer', options.buffer, ['max', 'maxBytes', 'policy'])
    this.#deadlineMs = toMs(options.deadline ?? 30_000, 'publish.deadline')
    this.outgoing = new Outgoing(driver, clock, events, options.buffer)
    const { middleware = [] } = options
    checkMiddleware('publish.middleware', middleware)
    if (middleware.length > 0) {
      this.#chain = compose<PublishContext>(middleware, (context) =>
        this.#innermost(context as Publication),
      ) as (publication: Publication) => MaybePromise<void>
    }
  }

  publish<In, Out>(
    topic: Topic<In, Out>,
    payload: In,
    options: PublishOptions = none,
  ): Promise<Published> {
    try {
      this.outgoing.assertOpen()
      if (options !== none) checkOptions(`publish('${topic.name}')`, options, publishOptions)
      const send = this.#sendOptions(options)
      if (this.#chain !== undefined) return this.#throughChain(topic, payload, options)
      const message = this.#build(topic, payload, options, options.headers)
      if (!isPromise(message)) return this.outgoing.send(message, send)
      return message.then((built) => this.outgoing.send(built, send))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async publishBatch<In, Out>(
    topic: Topic<In, Out>,
    entries: readonly BatchEntry<In>[],
    options: Pick<PublishOptions, 'deadline' | 'signal'> = none,
  ): Promise<PublishOutcome[]> {
    this.outgoing.assertOpen()
    checkOptions(`publishBatch('${topic.name}')`, options, ['deadline', 'signal'])
    if (!Array.isArray(entries)) {
      throw new OptionError(`publishBatch('${topic.name}') takes an array of { payload, … }`)
    }
    const outcomes = new Array<PublishOutcome>(entries.length)
    await new Promise<void>((resolve) => {
      let open = entries.length
      if (open === 0) resolve()
      const done = (index: number, outcome: PublishOutcome) => {
        outcomes[index] = outcome
        if (--open === 0) resolve()
      }
      entries.forEach((entry, index) => {
        this.#member(topic, entry, options, (outcome) => done(index, outcome))
      })
    })
    return outcomes
  }

  /** Sends one member of a batch; whatever is wrong with it is its own outcome. */
  #member<In, Out>(
    topic: Topic<In, Out>,
    entry: BatchEntry<In>,
    shared: Pick<PublishOptions, 'deadline' | 'signal'>,
    settle: (outcome: PublishOutcome) => void,
  ): void {
    const id = entry?.id ?? newId(this.clock.now())
    const fail = (thrown: unknown) => {
      const error =
        thrown instanceof LongshoreError ? thrown : wrapDriverError(thrown, 'publishing')
      settle({ status: 'failed', id, error })
    }
    try {
      if (entry === null || typeof entry !== 'object') {
        throw new OptionError(`publishBatch('${topic.name}') takes an array of { payload, … }`)
      }
      checkOptions(`publishBatch('${topic.name}')`, entry, entryOptions)
      const options: PublishOptions = { ...entry, ...shared, id }
      if (this.#chain !== undefined) {
        this.#throughChain(topic, entry.payload, options).then(
          (published) => settle({ status: 'confirmed', id: published.id }),
          (thrown) => {
            const error = wrapDriverError(thrown, `publishing to '${topic.name}'`)
            const status = error.code === 'LONGSHORE_OUTCOME_UNKNOWN' ? 'unknown' : 'failed'
            settle({ status, id, error })
          },
        )
        return
      }
      const send = this.#sendOptions(options)
      const message = this.#build(topic, entry.payload, options, options.headers)
      if (isPromise(message)) {
        message.then((built) => this.outgoing.add(built, send, settle)).catch(fail)
      } else {
        this.outgoing.add(message, send, settle)
      }
    } catch (thrown) {
      fail(thrown)
    }
  }

  async #throughChain<In, Out>(
    topic: Topic<In, Out>,
    payload: In,
    options: PublishOptions,
  ): Promise<Published> {
    const send = this.#sendOptions(options)
    const publication = new Publication(
      topic as unknown as Topic<never, never>,
      options.id ?? newId(this.clock.now()),
      this.#keyIfAny(topic, payload, options),
      payload,
      { ...options.headers },
      send.delayMs,
      options.correlationId,
      options.causationId,
      options,
    )
    await this.#chain!(publication)
    if (publication.published === undefined) {
      throw new OptionError(
        `publish('${topic.name}'): a middleware did not call next(), so nothing was published; throw an error there to say why`,
      )
    }
    return publication.published
  }

  async #innermost(publication: Publication): Promise<void> {
    const { of: topic, options, id, payload, headers } = publication
    const message = await this.#build(topic, payload as never, { ...options, id }, headers)
    publication.published = await this.outgoing.send(message, this.#sendOptions(options))
  }

  #key<In>(
    topic: Topic<In, never> | Topic<In, unknown>,
    payload: In,
    options: MessageOptions,
  ): string | undefined {
    if (options.key !== undefined) return this.#checkKey(topic.name, options.key)
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
    return key === undefined ? undefined : this.#checkKey(topic.name, key)
  }

  /** For middleware to see; what is wrong is raised after validation, where it belongs. */
  #keyIfAny<In>(
    topic: Topic<In, never> | Topic<In, unknown>,
    payload: In,
    options: MessageOptions,
  ) {
    try {
      return this.#key(topic, payload, options)
    } catch {
      return undefined
    }
  }

  #checkKey(topic: string, key: unknown): string {
    if (typeof key === 'string' && key.length > 0) return key
    throw new OptionError(
      `publish('${topic}'): the key must be a string that isn't empty, not ${JSON.stringify(key)}`,
    )
  }

  #build<In, Out>(
    topic: Topic<In, Out>,
    payload: In,
    options: MessageOptions,
    headers: Headers | undefined,
  ): MaybePromise<WireMessage> {
    if (topic.schema === undefined) return this.#message(topic, payload, options, headers)
    // The input is what is sent: the consumer's schema makes its output of it.
    const valid = validate(topic as unknown as Topic<never, unknown>, payload, 'publishing to')
    if (isPromise(valid)) return valid.then(() => this.#message(topic, payload, options, headers))
    return this.#message(topic, payload, options, headers)
  }

  #message<In, Out>(
    topic: Topic<In, Out>,
    payload: In,
    options: MessageOptions,
    headers: Headers | undefined,
  ): WireMessage {
    const { capabilities, name } = this.driver
    const body = encode(topic as Topic<In, never>, payload)
    if (body.byteLength > capabilities.maxBytes) {
      throw new TooLargeError(
        `publish('${topic.name}'): the body has ${body.byteLength} bytes, ${name} takes ${capabilities.maxBytes}; ` +
          'send a reference to the data instead, or raise the limit of driver and server',
      )
    }
    const now = this.clock.now()
    const id = options.id ?? newId(now)
    if (typeof id !== 'string' || id.length === 0 || id.length > 255) {
      throw new OptionError(`publish('${topic.name}'): an id has 1 to 255 characters`)
    }
    return {
      id,
      topic: topic.name,
      key: this.#key(topic, payload, options),
      body,
      headers:
        headers === undefined ? noHeaders : checkHeaders(headers, capabilities.headerCharset, name),
      contentType: topic.codec.contentType,
      timestamp: now,
      correlationId: options.correlationId,
      causationId: options.causationId,
    }
  }

  #sendOptions(options: PublishOptions): SendOptions {
    if (options === none) return this.#plain
    const { capabilities } = this.driver
    const { priority } = options
    let delayMs = 0
    if (options.at !== undefined) {
      if (options.delay !== undefined)
        throw new OptionError("give either 'delay' or 'at', not both")
      if (!(options.at instanceof Date) || Number.isNaN(options.at.getTime())) {
        throw new OptionError("'at' must be a valid Date")
      }
      delayMs = Math.max(0, options.at.getTime() - this.clock.now())
    } else if (options.delay !== undefined) {
      delayMs = toMs(options.delay, 'delay')
    }
    const asked = options.delay !== undefined || options.at !== undefined
    if (delayMs > capabilities.delay || (asked && capabilities.delay === 0)) {
      throw unsupported(
        this.driver,
        'delay',
        capabilities.delay === 0
          ? "delayed publishing (option 'delay' or 'at')"
          : `a delay of ${delayMs} ms; its longest is ${capabilities.delay} ms`,
      )
    }
    if (priority !== undefined) {
      if (capabilities.priority === 0)
        throw unsupported(this.driver, 'priority', "option 'priority'")
      if (!Number.isInteger(priority) || priority < 0 || priority >= capabilities.priority) {
        throw new OptionError(
          `priority is ${priority}; ${this.driver.name} has the levels 0 to ${capabilities.priority - 1}`,
        )
      }
    }
    if (options.ttl !== undefined && !capabilities.ttl) {
      throw unsupported(this.driver, 'ttl', "option 'ttl'")
    }
    return {
      delayMs,
      priority,
      ttlMs: options.ttl === undefined ? undefined : toMs(options.ttl, 'ttl'),
      deadlineMs:
        options.deadline === undefined ? this.#deadlineMs : toMs(options.deadline, 'deadline'),
      signal: options.signal,
    }
  }

  get #plain(): SendOptions {
    this.#plainOptions ??= {
      delayMs: 0,
      priority: undefined,
      ttlMs: undefined,
      deadlineMs: this.#deadlineMs,
      signal: undefined,
    }
    return this.#plainOptions
  }
  #plainOptions: SendOptions | undefined
}
