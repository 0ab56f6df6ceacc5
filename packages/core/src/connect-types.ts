import type { BufferOptions, Bus, ConsumeMiddleware, PublishMiddleware } from './api.js'
import type { Clock } from './clock.js'
import type { DriverModule } from './driver.js'
import type { Duration } from './duration.js'
import type { Logger } from './logger.js'
import type { MemoryOptions } from './memory/options.js'

/**
 * Options of each driver, by its name. A driver package adds its own:
 * `declare module '@longshore/core' { interface DriverOptions { acme: AcmeOptions } }`
 */
export interface DriverOptions {
  memory: MemoryOptions
}

/** The drivers that Longshore itself publishes, and the package that each lives in (`undefined`: in the core). */
export const knownDrivers = {
  memory: { schemes: ['memory'], package: undefined },
  rabbitmq: { schemes: ['amqp', 'amqps'], package: '@longshore/rabbitmq' },
  nats: { schemes: ['nats', 'nats+core', 'tls'], package: '@longshore/nats' },
  kafka: { schemes: ['kafka', 'kafkas'], package: '@longshore/kafka' },
  postgres: { schemes: ['postgres', 'postgresql', 'pglite'], package: '@longshore/postgres' },
  redis: { schemes: ['redis', 'rediss'], package: '@longshore/redis' },
} as const

export type DriverName = keyof typeof knownDrivers | keyof DriverOptions

/** Of a driver whose package isn't imported no option is known: import it (for its types alone, if you like). */
type OptionsOf<Name> = Name extends keyof DriverOptions
  ? DriverOptions[Name]
  : { readonly [option: string]: never }

export interface BusOptions {
  readonly publish?: {
    readonly middleware?: readonly PublishMiddleware[]
    readonly buffer?: BufferOptions
    /** How long a publish is tried before its outcome counts as unknown. Default 30 s. */
    readonly deadline?: Duration
  }
  readonly consume?: {
    /** Around every handler of this bus. */
    readonly middleware?: readonly ConsumeMiddleware[]
  }
  /** Default 10 s. */
  readonly connectTimeout?: Duration
  /** Whether topics and groups may be created on first use. Default true. */
  readonly autoCreate?: boolean
  /** Default: warnings and errors to the console. */
  readonly logger?: Logger
  readonly clock?: Clock
  /** Aborting gives up connecting. */
  readonly signal?: AbortSignal
}

/** Which broker: a URL (its scheme picks the driver), a driver's name, or a driver itself. */
export type DriverChoice =
  | { readonly url: string; readonly driver?: never; readonly options?: never }
  | {
      readonly [Name in DriverName]: {
        readonly driver: Name
        readonly url?: string
        readonly options?: OptionsOf<Name>
      }
    }[DriverName]

export type ConnectConfig = DriverChoice & BusOptions

export type ModuleConfig<Options extends object> = {
  readonly driver: DriverModule<Options>
  readonly url?: string
  readonly options?: Options
} & BusOptions

export interface Connect {
  (url: string, options?: BusOptions): Promise<Bus>
  (config: ConnectConfig): Promise<Bus>
  <Options extends object>(config: ModuleConfig<Options>): Promise<Bus>
}
