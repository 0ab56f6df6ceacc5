import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Codec } from './codecs/codec.js'
import { json } from './codecs/json.js'
import { OptionError, show } from './errors.js'
import { checkName } from './names.js'
import { checkOptions } from './options.js'

/** A named destination with its payload's type, as made by `topic()`. `In` is what is published, `Out` what handlers get. */
export interface Topic<In = unknown, Out = In> {
  readonly name: string
  readonly codec: Codec<In>
  readonly schema: StandardSchemaV1<In, Out> | undefined
  readonly key: ((payload: In) => string | undefined) | undefined
  /** Only for inference; never there at run time. */
  readonly '~types'?: { readonly in: In; readonly out: Out }
}

export interface TopicOptions<In, Out = In> {
  /** Any Standard Schema (zod, valibot, arktype, …). Payloads are validated on both sides; handlers get its output. */
  readonly schema?: StandardSchemaV1<In, Out>
  /** The key of a payload: messages with one key can be kept in order. */
  readonly key?: (payload: In) => string | undefined
  /** Default: JSON. */
  readonly codec?: Codec<In>
}

const optionNames = ['schema', 'key', 'codec'] as const

/**
 * Declares a topic. Publish and subscribe with it, and the payload is typed and validated.
 * @throws NameError if a broker could not hold the name; UnknownOptionError
 */
export function topic<S extends StandardSchemaV1>(
  name: string,
  options: TopicOptions<StandardSchemaV1.InferInput<S>, StandardSchemaV1.InferOutput<S>> & {
    schema: S
  },
): Topic<StandardSchemaV1.InferInput<S>, StandardSchemaV1.InferOutput<S>>
export function topic<T = unknown>(name: string, options?: TopicOptions<T>): Topic<T>
export function topic<In, Out>(name: string, options: TopicOptions<In, Out> = {}): Topic<In, Out> {
  checkName('topic', name)
  checkOptions(`topic('${name}')`, options, optionNames)
  const schema = options.schema
  if (schema !== undefined && typeof schema?.['~standard']?.validate !== 'function') {
    throw new OptionError(
      `topic('${name}'): schema is no Standard Schema; give one of zod, valibot, arktype or another that has '~standard'`,
    )
  }
  if (options.key !== undefined && typeof options.key !== 'function') {
    throw new OptionError(`topic('${name}'): key is a function (payload) that returns a string`)
  }
  const { codec } = options
  if (
    codec !== undefined &&
    !(
      typeof codec?.encode === 'function' &&
      typeof codec.decode === 'function' &&
      typeof codec.contentType === 'string'
    )
  ) {
    throw new OptionError(`topic('${name}'): codec is an object such as json(), text() or binary()`)
  }
  return Object.freeze({ name, codec: options.codec ?? json<In>(), schema, key: options.key })
}

/** A topic, or the name of one (JSON, no schema, no key). */
export type TopicLike<In = unknown, Out = In> = Topic<In, Out> | string

/** A topic of any type, or its name, where the payload doesn't matter. */
export type TopicRef = string | { readonly name: string }

export function toTopic<In, Out>(value: TopicLike<In, Out>): Topic<In, Out> {
  if (typeof value === 'string') return plain(value)
  if (typeof value?.codec?.decode === 'function') return value
  throw new OptionError(
    `${show(value)} is no topic; give a name, or what topic(name, options) returns`,
  )
}

/**
 * The name of a topic, checked.
 * @throws NameError, OptionError
 */
export function nameOf(topic: TopicRef): string {
  const name = typeof topic === 'string' ? topic : topic?.name
  checkName('topic', name)
  return name
}

const plainTopics = new Map<string, Topic<never, never>>()

function plain<In, Out>(name: string): Topic<In, Out> {
  let found = plainTopics.get(name)
  if (found === undefined) {
    found = topic<never>(name)
    // Bounded: names may be made up at run time.
    if (plainTopics.size >= 1000) plainTopics.clear()
    plainTopics.set(name, found)
  }
  return found as unknown as Topic<In, Out>
}
