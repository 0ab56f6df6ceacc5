import type {
  BatchEntry,
  BufferOptions,
  PublishContext,
  Published,
  PublishMiddleware,
  PublishOptions,
  PublishOutcome,
} from '../api.js'
import type { Clock } from '../clock.js'
import type { Driver } from '../driver.js'
import { type Duration, toMs } from '../duration.js'
import { LongshoreError, MiddlewareError, OptionError, toError } from '../errors.js'
import type { EventSources } from '../events.js'
import { newId } from '../message.js'
import { compose } from '../middleware/compose.js'
import { areKnown, checkMiddleware, checkOptions } from '../options.js'
import { isPromise, type MaybePromise } from '../promise.js'
import type { Topic } from '../topic.js'
import type { Settle } from './entry.js'
import { Outgoing } from './outgoing.js'
import { Preparer } from './prepare.js'

const messageOptions = [
  'id',
  'key',
  'headers',
  'delay',
  'at',
  'priority',
  'ttl',
  'route',
  'correlationId',
  'causationId',
] as const
const publishOptions = [...messageOptions, 'deadline', 'signal'] as const
/** `payload` first: every entry has it. */
const entryOptions = ['payload', ...messageOptions] as const

const none: PublishOptions = Object.freeze({})

export interface PublisherOptions {
  readonly middleware?: readonly PublishMiddleware[]
  readonly buffer?: BufferOptions
  readonly deadline?: Duration
}

/** One publish on its way through the middleware. */
class Publication implements PublishContext {
  cursor = 0
  /** It got through all middleware. */
  entered = false
  published: Published | undefined

  constructor(
    readonly of: Topic<never, never>,
    readonly id: string,
    readonly key: string | undefined,
    readonly payload: unknown,
    readonly headers: Record<string, string>,
    readonly delayMs: number,
    readonly options: PublishOptions,
  ) {}

  get topic(): string {
    return this.of.name
  }

  get route(): string | undefined {
    return this.options.route
  }

  get correlationId(): string | undefined {
    return this.options.correlationId
  }

  get causationId(): string | undefined {
    return this.options.causationId
  }
}

/** Takes payloads through middleware, makes messages of them and hands them to the outgoing buffer. */
export class Publisher {
  readonly outgoing: Outgoing
  readonly #prepare: Preparer
  readonly #chain: ((publication: Publication) => MaybePromise<void>) | undefined

  constructor(
    driver: Driver,
    private readonly clock: Clock,
    events: EventSources,
    options: PublisherOptions = {},
  ) {
    checkOptions('publish', options, ['middleware', 'buffer', 'deadline'])
    const { middleware = [], buffer = {}, deadline = 30_000 } = options
    checkOptions('publish.buffer', buffer, ['max', 'maxBytes', 'policy'])
    checkMiddleware('publish.middleware', middleware)
    this.#prepare = new Preparer(driver, clock, toMs(deadline, 'publish.deadline'))
    this.outgoing = new Outgoing(driver, clock, events, buffer)
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
      if (this.#chain !== undefined) return this.#throughChain(topic, payload, options)
      const send = this.#prepare.sendOptions(options, options)
      const message = this.#prepare.message(topic, payload, options, options.headers)
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
    if (entries.length === 0) return outcomes
    await new Promise<void>((resolve) => {
      let open = entries.length
      const settle: Settle = (outcome, index) => {
        outcomes[index] = outcome
        if (--open === 0) resolve()
      }
      for (let i = 0; i < entries.length; i++) this.#member(topic, entries[i]!, options, settle, i)
    })
    return outcomes
  }

  /** Sends one member of a batch; whatever is wrong with it is its own outcome. */
  #member<In, Out>(
    topic: Topic<In, Out>,
    entry: BatchEntry<In>,
    shared: Pick<PublishOptions, 'deadline' | 'signal'>,
    settle: Settle,
    index: number,
  ): void {
    try {
      if (!areKnown(entry, entryOptions)) {
        checkOptions(`publishBatch('${topic.name}')`, entry, entryOptions)
      }
      if (this.#chain !== undefined) {
        return this.#memberThroughChain(topic, entry, shared, settle, index)
      }
      const send = this.#prepare.sendOptions(entry, shared)
      const message = this.#prepare.message(topic, entry.payload, entry, entry.headers)
      if (!isPromise(message)) return this.outgoing.add(message, send, settle, index)
      message.then(
        (built) => this.outgoing.add(built, send, settle, index),
        (thrown) => settle(failed(thrown, entry.id ?? newId(this.clock.now())), index),
      )
    } catch (thrown) {
      settle(failed(thrown, entry?.id ?? newId(this.clock.now())), index)
    }
  }

  #memberThroughChain<In, Out>(
    topic: Topic<In, Out>,
    entry: BatchEntry<In>,
    shared: Pick<PublishOptions, 'deadline' | 'signal'>,
    settle: Settle,
    index: number,
  ): void {
    const id = entry.id ?? newId(this.clock.now())
    this.#throughChain(topic, entry.payload, { ...entry, ...shared, id }).then(
      () => settle({ status: 'confirmed', id }, index),
      (thrown) => settle(failed(thrown, id), index),
    )
  }

  async #throughChain<In, Out>(
    topic: Topic<In, Out>,
    payload: In,
    options: PublishOptions,
  ): Promise<Published> {
    const { delayMs } = this.#prepare.sendOptions(options, options)
    const publication = new Publication(
      topic as unknown as Topic<never, never>,
      options.id ?? newId(this.clock.now()),
      this.#keyIfAny(topic, payload, options),
      payload,
      { ...options.headers },
      delayMs,
      options,
    )
    await this.#chain!(publication)
    if (publication.published === undefined) {
      throw new MiddlewareError(
        publication.entered
          ? `publish('${topic.name}'): a middleware returned before next() had ended, or hid its failure; await next(context), ` +
              `and let its errors pass. Message ${publication.id} may have been published`
          : `publish('${topic.name}'): a middleware did not call next(), so nothing was published; throw an error there to say why`,
      )
    }
    return publication.published
  }

  async #innermost(publication: Publication): Promise<void> {
    const { of: topic, options, id, payload, headers } = publication
    publication.entered = true
    const send = this.#prepare.sendOptions(options, options)
    const message = await this.#prepare.message(topic, payload as never, options, headers, id)
    publication.published = await this.outgoing.send(message, send)
  }

  /** For middleware to see; what is wrong with it is raised after validation, where it belongs. */
  #keyIfAny<In, Out>(
    topic: Topic<In, Out>,
    payload: In,
    options: PublishOptions,
  ): string | undefined {
    try {
      return this.#prepare.key(topic, payload, options)
    } catch {
      return undefined
    }
  }
}

function failed(thrown: unknown, id: string): PublishOutcome {
  const error =
    thrown instanceof LongshoreError
      ? thrown
      : new MiddlewareError(`a publish middleware threw: ${toError(thrown).message}`, {
          cause: thrown,
        })
  const status = error.code === 'LONGSHORE_OUTCOME_UNKNOWN' ? 'unknown' : 'failed'
  return { status, id, error }
}
