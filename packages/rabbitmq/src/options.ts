import type { WireMessage } from '@longshore/core/driver'

/** Options of the RabbitMQ driver; those of plain values can stand in the URL's query, too: `amqp://host/vhost?heartbeat=10`. */
export interface RabbitmqOptions {
  /**
   * More hosts of the same cluster, each `host` or `host:port`, tried in turn when the one in the URL can't be had. In a
   * URL: `amqp://user:password@one:5672,two:5672/vhost`.
   */
  readonly hosts?: readonly string[]
  /** In place of the URL's path. Default `/`. */
  readonly vhost?: string
  readonly username?: string
  readonly password?: string
  /** For `amqps:`; certificates and keys as `node:tls` takes them. */
  readonly tls?: TlsOptions
  /** Shown by the broker's own tools. Default: the process's title and id. */
  readonly connectionName?: string
  /** Seconds between heartbeats; a silent connection is given up after two to three of them. 0: none. Default 5. */
  readonly heartbeat?: number
  /** Milliseconds after which an unconfirmed publish counts as unknown and its channel is opened anew. Default 15,000. */
  readonly confirmTimeout?: number
  /** Of the queues that the driver makes. `classic` queues aren't replicated and don't count deliveries. Default `quorum`. */
  readonly queueType?: 'quorum' | 'classic'
  /** Priority levels, 2 to 255; only with `queueType: 'classic'`. Default 0: none. */
  readonly priorities?: number
  /**
   * Queues that a group with `order: 'key'` is split into, 1 to 64: as many members can work at once. Fixed when the group
   * is made. Default 8.
   */
  readonly partitions?: number
  /**
   * Largest body in bytes that is sent. Default 16 MiB, what RabbitMQ 4 takes by default (`max_message_size`); before 4.0
   * it took 128 MiB.
   */
  readonly maxBytes?: number
  /**
   * Ask the broker to return what reaches no queue: publishing to a topic without any group is then a NotFoundError. Default:
   * only with `autoCreate: false`.
   */
  readonly mandatory?: boolean
  /** Of topics' exchanges. `topic` allows wildcards in `routes`, `direct` only exact ones; others have none. Default `topic`. */
  readonly exchangeType?: 'topic' | 'direct' | 'fanout'
  /** The exchange of a topic. Default: the topic's name. */
  readonly exchange?: (topic: string) => string
  /** The queue of a group. Default: `topic..group`; what else the group needs is named after it. */
  readonly queue?: (topic: string, group: string) => string
  /** The queue of a group's dead letters. Default: the group's queue + `..dead`. */
  readonly deadLetterQueue?: (topic: string, group: string) => string
  /** The routing key of a message. Default: its route, empty without one. */
  readonly routingKey?: (message: WireMessage, route: string | undefined) => string
  /** The keys that bind a group's queue to its topic's exchange. Default: the group's routes, `#` without any. */
  readonly bindingKeys?: (
    topic: string,
    group: string,
    routes: readonly string[] | undefined,
  ) => readonly string[]
}

/** What `node:tls` takes to connect. */
export interface TlsOptions {
  readonly ca?: string | Buffer | readonly (string | Buffer)[]
  readonly cert?: string | Buffer
  readonly key?: string | Buffer
  readonly pfx?: string | Buffer
  readonly passphrase?: string
  readonly servername?: string
  /** Default true. `false` accepts any certificate: only for tests. */
  readonly rejectUnauthorized?: boolean
}
