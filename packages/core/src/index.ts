export type * from './admin.js'
export type * from './api.js'
export type * from './capabilities.js'
export type * from './circuits.js'
export { type Clock, systemClock, type Timer } from './clock.js'
export { binary } from './codecs/binary.js'
export type { Codec } from './codecs/codec.js'
export { json } from './codecs/json.js'
export { text } from './codecs/text.js'
export { connect } from './connect.js'
export type {
  BusOptions,
  Connect,
  ConnectConfig,
  DriverName,
  DriverOptions,
  ModuleConfig,
} from './connect-types.js'
export type * from './dead-letter.js'
export type { Duration } from './duration.js'
export {
  AbortedError,
  AccessError,
  ClosedError,
  CloseInHandlerError,
  ConflictError,
  ConnectionError,
  DecodeError,
  DriverError,
  DriverNotInstalledError,
  DroppedError,
  EncodeError,
  HandlerTimeoutError,
  HeaderError,
  type Issue,
  LongshoreError,
  MiddlewareError,
  NameError,
  NonError,
  NotFoundError,
  NotSentError,
  OptionError,
  OutcomeUnknownError,
  PermanentError,
  PublishError,
  RejectedError,
  RevokedError,
  SaturatedError,
  TooLargeError,
  UnknownDriverError,
  UnknownOptionError,
  UnsupportedError,
  ValidationError,
} from './errors.js'
export type { BusEvents } from './events.js'
export { consoleLogger, type Logger, silentLogger } from './logger.js'
export { type MemoryConnection, memory } from './memory/index.js'
export type { MemoryOptions } from './memory/options.js'
export type { Headers, Message } from './message.js'
export { deadLetter } from './middleware/dead-letter.js'
export {
  type DedupeStore,
  type DeduplicateOptions,
  deduplicate,
  MemoryDedupeStore,
} from './middleware/deduplicate.js'
export { logging } from './middleware/logging.js'
export { retry } from './middleware/retry.js'
export { timeout } from './middleware/timeout.js'
export { registerDriver } from './registry.js'
export { RetryLaterError, type RetryLaterOptions } from './retry-later.js'
export { type Topic, type TopicLike, type TopicOptions, type TopicRef, topic } from './topic.js'
export { type Drainable, runWorker, type WorkerOptions } from './worker.js'
