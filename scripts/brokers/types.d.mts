/** Where a broker comes from. */
export type Source = 'env' | 'docker' | 'native'

/** The five products; `NAME@next` is the newer version of the same product. */
export type Kind = 'rabbitmq' | 'nats' | 'kafka' | 'postgres' | 'redis'

/** A running broker, ready for clients. */
export interface BrokerInfo {
  name: string
  url: string
  /** As the running server tells it; `unknown` where its protocol doesn't. */
  version: string
  source: Source
  port: number
}

export interface BrokerStatus {
  name: string
  state: 'up' | 'unhealthy' | 'paused' | 'down' | 'unavailable'
  source?: Source | undefined
  version?: string | undefined
  pid?: number | undefined
  url?: string | undefined
  /** Seconds since it was started. */
  uptime?: number | undefined
  /** Why it is unavailable or unhealthy. */
  reason?: string | undefined
}

/** What one of several brokers asked for came to: exactly one of the two is set. */
export interface Outcome {
  name: string
  info?: BrokerInfo
  error?: Error & { code?: string }
  /** Milliseconds. */
  took: number
}

export type Log = (line: string) => void

export interface Options {
  /** Gets one line for each slow step. */
  log?: Log | undefined
  /** Gives up: a broker that is being started is ended again. */
  signal?: AbortSignal | undefined
}

/** A process that we started: the start time tells it from a later one with the same id. */
export interface Ident {
  pid: number
  startTime: string
}

/** `state.json` of a broker. */
export interface State {
  source: 'docker' | 'native'
  /** `main` is the clients' port. */
  ports: Record<string, number>
  process?: Ident | undefined
  /** Milliseconds since 1970. */
  startedAt?: number | undefined
  /** The version installed, for servers whose protocol doesn't tell it. */
  installed?: string | undefined
}

/** A command as `spawn` wants it. */
export interface Command {
  command: string
  args: string[]
  cwd?: string | undefined
  env?: Record<string, string> | undefined
  uid?: number | undefined
  gid?: number | undefined
}

/** How a server's programs are run: on this system, or inside the Debian 13 folder. */
export interface Runner {
  /** The broker's folder as the program sees it. */
  dir: string
  /** A path on this machine for one that the program sees, for looking whether it is there. */
  host(path: string): string
  wrap(command: Command & { user?: string | undefined }): Command
}

export interface NativeContext {
  name: string
  next: boolean
  /** The broker's own folder on this machine. */
  dir: string
  ports: Record<string, number>
  log: Log
  signal: AbortSignal | undefined
}

/** What `install` hands on to `prepare`. */
export interface Installed {
  runner: Runner
  /** The server's program, or its folder, as the runner sees it. */
  program: string
  version?: string | undefined
}

export interface Definition {
  kind: Kind
  /** Names of the ports needed, `main` first. */
  ports: string[]
  containerPort: number
  /** Signal for an orderly end. */
  stopSignal: NodeJS.Signals
  /** Milliseconds until it must answer after its start. */
  startDeadline: number
  url(port: number): string
  /** The Debian packages that it needs, so that all brokers' can be installed at once. */
  packages(next: boolean): Promise<string[]>
  /** Brings what is needed; idempotent. */
  install(context: NativeContext): Promise<Installed>
  /** Writes configuration, makes the data on first use, and returns the server's command. */
  prepare(context: NativeContext, installed: Installed): Promise<Command>
  /** Resolves to the version when the server is ready for clients, rejects otherwise. */
  probe(url: string): Promise<{ version?: string | undefined }>
  /** The server's own tool for administrators, where we use one. */
  tool?: {
    containerProgram: string
    native(context: NativeContext, installed: Installed, args: readonly string[]): Command
  }
}

/** Starts and ends servers of one source. The caller holds the broker's lock. */
export interface Manager {
  /** Starts it if it is down; doesn't wait for it to be ready. */
  start(definition: Definition, name: string, options: Options): Promise<State>
  /** `hard`: as a crash. Resolves to whether anything was running. */
  stop(definition: Definition, name: string, hard: boolean): Promise<boolean>
  pause(definition: Definition, name: string): Promise<void>
  resume(definition: Definition, name: string): Promise<void>
  inspect(definition: Definition, name: string): Promise<{ running: boolean; paused: boolean }>
  logs(definition: Definition, name: string, lines: number): Promise<string>
  /** The command that runs the server's own tool on the running broker. */
  tool(definition: Definition, name: string, args: readonly string[]): Promise<Command>
}
