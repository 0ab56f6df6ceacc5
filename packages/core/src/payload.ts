import type { StandardSchemaV1 } from '@standard-schema/spec'
import { DecodeError, EncodeError, type Issue, show, toError, ValidationError } from './errors.js'
import { isPromise, type MaybePromise } from './promise.js'
import type { Topic } from './topic.js'

/**
 * The schema's output for a value.
 * @throws (or rejects with) ValidationError if the schema refuses the value or throws itself
 */
export function validate<Out>(
  topic: Pick<Topic<never, Out>, 'name' | 'schema'>,
  value: unknown,
  doing: string,
): MaybePromise<Out> {
  const schema = topic.schema as StandardSchemaV1<unknown, Out> | undefined
  if (schema === undefined) return value as Out
  let result: MaybePromise<StandardSchemaV1.Result<Out>>
  try {
    result = schema['~standard'].validate(value)
  } catch (error) {
    throw schemaThrew(topic.name, doing, error)
  }
  if (!isPromise(result)) return outcome(topic.name, doing, result)
  return result.then(
    (settled) => outcome(topic.name, doing, settled),
    (error) => {
      throw schemaThrew(topic.name, doing, error)
    },
  )
}

function outcome<Out>(topic: string, doing: string, result: StandardSchemaV1.Result<Out>): Out {
  if (typeof result !== 'object' || result === null) {
    throw schemaThrew(topic, doing, new TypeError(`validate returned ${show(result)}`))
  }
  if (result.issues === undefined) return result.value
  if (!Array.isArray(result.issues)) {
    throw schemaThrew(
      topic,
      doing,
      new TypeError(`validate returned issues ${show(result.issues)}`),
    )
  }
  const issues = (result.issues as readonly StandardSchemaV1.Issue[]).map(
    (issue): Issue => ({ message: issue.message, path: (issue.path ?? []).map(segment).join('.') }),
  )
  const listed = issues
    .slice(0, 5)
    .map(({ path, message }) => (path ? `${path}: ${message}` : message))
  const more = issues.length > 5 ? `; and ${issues.length - 5} more` : ''
  throw new ValidationError(
    `${doing} '${topic}': the schema refuses the payload: ${listed.join('; ')}${more}`,
    issues,
  )
}

const segment = (part: PropertyKey | StandardSchemaV1.PathSegment): string =>
  String(typeof part === 'object' ? part.key : part)

function schemaThrew(topic: string, doing: string, thrown: unknown): ValidationError {
  const error = toError(thrown)
  return new ValidationError(
    `${doing} '${topic}': the schema itself threw: ${error.message}; a schema should return issues instead`,
    [{ message: error.message, path: '' }],
    { cause: error },
  )
}

/** @throws EncodeError */
export function encode<In>(topic: Pick<Topic<In>, 'name' | 'codec'>, payload: In): Uint8Array {
  const where = `publishing to '${topic.name}': the ${topic.codec.contentType} codec`
  let body: Uint8Array
  try {
    body = topic.codec.encode(payload)
  } catch (thrown) {
    const error = toError(thrown)
    throw new EncodeError(`${where} can't encode the payload: ${error.message}`, { cause: error })
  }
  if (body instanceof Uint8Array) return body
  throw new EncodeError(
    `${where} gave a ${typeof body}; encode must return a Uint8Array, not a promise of one`,
  )
}

/** @throws DecodeError */
export function decode<In>(topic: Pick<Topic<In>, 'name' | 'codec'>, body: Uint8Array): In {
  try {
    return topic.codec.decode(body)
  } catch (thrown) {
    const error = toError(thrown)
    throw new DecodeError(
      `a message of '${topic.name}': the ${topic.codec.contentType} codec can't decode the body: ${error.message}`,
      { cause: error },
    )
  }
}
