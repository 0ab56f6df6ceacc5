export interface MemoryOptions {
  /**
   * Connections with one name share one broker, within the process. Default: a broker of its own. In a URL:
   * `memory://name`.
   */
  readonly name?: string
  /** Messages that a topic keeps for groups that start in the past (`from: 'earliest'`, or a Date). Default 1,000; what is kept costs speed:
   * at 10,000 a third of the throughput, as each message outlives the young generation of the heap. */
  readonly retain?: number
  /** Messages that may wait in one group; past it publishing is refused with a RejectedError. Default 1,000,000. */
  readonly maxBacklog?: number
  /** Largest body in bytes. Default 64 MiB. */
  readonly maxBytes?: number
  /** Milliseconds within which a repeated message id is confirmed but not stored again. Default 0: off. */
  readonly dedupeWindow?: number
  /**
   * Keep key order as RabbitMQ, JetStream and Kafka do, by so many partitions with one member each, and hold blocked
   * keys in the consumer's process. Default 0: each key by itself, held by the broker, as Postgres does.
   */
  readonly partitions?: number
}
