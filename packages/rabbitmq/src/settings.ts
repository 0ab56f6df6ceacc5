import { createHash } from 'node:crypto'
import { OptionError } from '@longshore/core'
import { type DriverConfig, redact, type WireMessage } from '@longshore/core/driver'
import type { RabbitmqOptions, TlsOptions } from './options.js'

export interface Host {
  readonly hostname: string
  readonly port: number
}

/** The options, checked, with their defaults. */
export interface Settings {
  readonly secure: boolean
  readonly hosts: readonly Host[]
  readonly vhost: string
  readonly username: string
  readonly password: string
  readonly tls: TlsOptions
  readonly connectionName: string
  readonly heartbeat: number
  readonly confirmTimeout: number
  readonly queueType: 'quorum' | 'classic'
  readonly priorities: number
  readonly partitions: number
  readonly maxBytes: number
  readonly mandatory: boolean
  readonly autoCreate: boolean
  readonly exchangeType: 'topic' | 'direct' | 'fanout'
  readonly names: Names
  routingKey(message: WireMessage, route: string | undefined): string
  bindingKeys(
    topic: string,
    group: string,
    routes: readonly string[] | undefined,
  ): readonly string[]
}

/** What the driver's objects at the broker are called. */
export interface Names {
  exchange(topic: string): string
  queue(topic: string, group: string): string
  deadLetters(topic: string, group: string): string
  circuits(topic: string, group: string): string
}

/** Every option, and whether the URL's query can hold it. */
const kinds: {
  readonly [Name in keyof Required<RabbitmqOptions>]: 'text' | 'number' | 'flag' | ''
} = {
  hosts: '',
  vhost: '',
  username: '',
  password: '',
  tls: '',
  connectionName: 'text',
  heartbeat: 'number',
  confirmTimeout: 'number',
  queueType: 'text',
  priorities: 'number',
  partitions: 'number',
  maxBytes: 'number',
  mandatory: 'flag',
  exchangeType: 'text',
  exchange: '',
  queue: '',
  deadLetterQueue: '',
  routingKey: '',
  bindingKeys: '',
}

export const optionNames = Object.keys(kinds) as readonly (keyof RabbitmqOptions & string)[]

const tlsNames = ['ca', 'cert', 'key', 'pfx', 'passphrase', 'servername', 'rejectUnauthorized']

/** @throws OptionError */
export function resolveSettings(config: DriverConfig<RabbitmqOptions>): Settings {
  const address = parseUrl(config.url ?? 'amqp://localhost')
  const given: RabbitmqOptions = { ...address.options, ...config.options }
  const { names, routingKey, bindingKeys } = naming(given)
  const queueType = choice('queueType', given.queueType ?? 'quorum', ['quorum', 'classic'])
  const priorities = whole('priorities', given.priorities ?? 0, 0, 255)
  if (priorities > 0 && (queueType === 'quorum' || priorities === 1)) {
    throw new OptionError(
      "rabbitmq: priorities are 2 to 255 and need queueType: 'classic'; quorum queues keep no strict priority",
    )
  }
  return {
    secure: address.secure,
    hosts: [...address.hosts, ...hostsOf(given.hosts, address.secure)],
    vhost: text('vhost', given.vhost ?? address.vhost),
    username: text('username', given.username ?? address.username),
    password: text('password', given.password ?? address.password),
    tls: tlsOf(given.tls, address.secure),
    connectionName: text(
      'connectionName',
      given.connectionName ?? `${process.title} ${process.pid}`,
    ),
    heartbeat: whole('heartbeat', given.heartbeat ?? 5, 0, 65_535),
    confirmTimeout: whole('confirmTimeout', given.confirmTimeout ?? 15_000, 1, 2 ** 31 - 1),
    queueType,
    priorities,
    partitions: whole('partitions', given.partitions ?? 8, 1, slots),
    maxBytes: whole('maxBytes', given.maxBytes ?? 16 * 1024 * 1024, 1, 2 ** 29),
    mandatory: flag('mandatory', given.mandatory ?? !config.autoCreate),
    autoCreate: config.autoCreate,
    exchangeType: choice('exchangeType', given.exchangeType ?? 'topic', [
      'topic',
      'direct',
      'fanout',
    ]),
    names,
    routingKey,
    bindingKeys,
  }
}

// --- Names ---

function naming(given: RabbitmqOptions): Pick<Settings, 'names' | 'routingKey' | 'bindingKeys'> {
  const exchange = named('exchange', given.exchange ?? ((topic) => topic))
  const queue = named('queue', given.queue ?? ((topic, group) => `${topic}..${group}`))
  const deadLetters = named(
    'deadLetterQueue',
    given.deadLetterQueue ?? ((topic, group) => `${queue(topic, group)}..dead`),
  )
  return {
    names: {
      exchange,
      queue,
      deadLetters,
      circuits: (topic, group) => `${queue(topic, group)}..circuits`,
    },
    routingKey: named('routingKey', given.routingKey ?? ((_, route) => route ?? '')),
    bindingKeys: keysOf(
      given.bindingKeys ?? ((topic, group, routes) => routes ?? everything(topic, group, given)),
    ),
  }
}

/** A direct exchange hands out by exact keys only. */
function everything(topic: string, group: string, { exchangeType }: RabbitmqOptions) {
  if (exchangeType !== 'direct') return ['#']
  throw new OptionError(
    `rabbitmq: with exchangeType 'direct' group '${group}' of topic '${topic}' can't get everything; give it routes, or the option bindingKeys`,
  )
}

/** A user's function, whose answer must be a name that AMQP can hold. */
function named<Args extends unknown[]>(option: string, name: (...args: Args) => string) {
  aFunction(option, name)
  return (...args: Args): string => {
    let given: unknown
    try {
      given = name(...args)
    } catch (error) {
      throw itThrew(option, error)
    }
    if (isName(given)) return given
    throw new OptionError(
      `rabbitmq: the function '${option}' gave ${JSON.stringify(given)}; it must give a string of at most 255 bytes`,
    )
  }
}

function keysOf(bindingKeys: Settings['bindingKeys']): Settings['bindingKeys'] {
  aFunction('bindingKeys', bindingKeys)
  return (...args) => {
    let given: unknown
    try {
      given = bindingKeys(...args)
    } catch (error) {
      throw itThrew('bindingKeys', error)
    }
    if (Array.isArray(given) && given.every(isName)) return given
    throw new OptionError(
      `rabbitmq: the function 'bindingKeys' gave ${JSON.stringify(given)}; it must give an array of strings of at most 255 bytes`,
    )
  }
}

const isName = (given: unknown): given is string =>
  typeof given === 'string' && (given.length < 64 || Buffer.byteLength(given) <= 255)

function itThrew(option: string, error: unknown): OptionError {
  if (error instanceof OptionError) return error
  const { message } = error instanceof Error ? error : new Error(String(error))
  return new OptionError(`rabbitmq: the function '${option}' threw: ${message}`, { cause: error })
}

function aFunction(option: string, value: unknown): void {
  if (typeof value !== 'function') throw new OptionError(`rabbitmq: ${option} must be a function`)
}

/** Keys are hashed to so many slots, which the partitions of each ordered group share among them. */
export const slots = 64

const slotTexts: readonly string[] = Array.from({ length: slots }, (_, slot) => String(slot))

/** The slot of a key: FNV-1a over UTF-16 code units, modulo 64. Other producers may compute it the same way. */
export function slotOf(key: string): string {
  let h = 0x811c9dc5
  for (let i = 0; i < key.length; i++) h = Math.imul(h ^ key.charCodeAt(i), 0x01000193)
  return slotTexts[(h >>> 0) % slots]!
}

/** A word for a routing key that stands for any name: 64 bits of its hash. */
export function wordOf(kind: 'exchange' | 'queue', name: string): string {
  return createHash('sha256').update(`${kind}:${name}`).digest('hex').slice(0, 16)
}

// --- The URL ---

interface Address {
  readonly secure: boolean
  readonly hosts: readonly Host[]
  readonly vhost: string
  readonly username: string
  readonly password: string
  readonly options: RabbitmqOptions
}

/** By hand, as `URL` knows of one host only. */
function parseUrl(url: string): Address {
  const match = /^(amqps?):\/\/(?:([^@/?]*)@)?([^/?]*)(?:\/([^?]*))?(?:\?(.*))?$/i.exec(url)
  if (match === null) {
    throw new OptionError(
      `'${redact(url)}' is no valid URL; for instance amqp://user:password@host:5672/vhost`,
    )
  }
  const [, scheme = '', login = '', authority = '', path = '', query = ''] = match
  const secure = scheme.toLowerCase() === 'amqps'
  const [username = '', password = ''] = login.split(/:(.*)/s)
  return {
    secure,
    hosts: (authority || 'localhost').split(',').map((host) => parseHost(host, secure)),
    vhost: decode('vhost', path) || '/',
    username: login === '' ? 'guest' : decode('user', username),
    password: login === '' ? 'guest' : decode('password', password),
    options: queryOptions(query),
  }
}

function decode(what: string, text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new OptionError(`rabbitmq: the ${what} in the URL has a '%' that is no %-encoding`)
  }
}

function parseHost(text: string, secure: boolean): Host {
  const match = /^(?:\[([0-9a-f:.]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/i.exec(text)
  if (match === null) {
    throw new OptionError(
      `rabbitmq: '${text}' is no host; write 'host', 'host:port' or '[::1]:port'`,
    )
  }
  const port = match[3] === undefined ? (secure ? 5671 : 5672) : Number(match[3])
  return { hostname: match[1] ?? match[2]!, port }
}

function hostsOf(hosts: readonly string[] | undefined, secure: boolean): Host[] {
  if (hosts === undefined) return []
  if (!Array.isArray(hosts)) throw new OptionError('rabbitmq: hosts must be an array of strings')
  return hosts.map((host) => parseHost(String(host), secure))
}

function queryOptions(query: string): RabbitmqOptions {
  const options: Record<string, unknown> = {}
  for (const [name, value] of new URLSearchParams(query)) {
    const kind = Object.hasOwn(kinds, name) ? kinds[name as keyof RabbitmqOptions] : ''
    if (kind === '') {
      const known = optionNames.filter((each) => kinds[each] !== '').join(', ')
      throw new OptionError(
        `rabbitmq: '${name}' can't be given in the URL; known there are: ${known}`,
      )
    }
    if (kind === 'text') options[name] = value
    else if (kind === 'number') options[name] = value === '' ? Number.NaN : Number(value)
    else options[name] = value === 'true' ? true : value === 'false' ? false : value
  }
  return options
}

// --- Checks ---

function whole(option: string, value: unknown, min: number, max: number): number {
  if (Number.isInteger(value) && (value as number) >= min && (value as number) <= max) {
    return value as number
  }
  throw new OptionError(
    `rabbitmq: ${option} is ${value}; it must be a whole number from ${min} to ${max}`,
  )
}

function text(option: string, value: unknown): string {
  if (typeof value === 'string') return value
  throw new OptionError(`rabbitmq: ${option} must be a string`)
}

function flag(option: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value
  throw new OptionError(`rabbitmq: ${option} is ${value}; it is true or false`)
}

function choice<T extends string>(option: string, value: string, allowed: readonly T[]): T {
  if (allowed.includes(value as T)) return value as T
  throw new OptionError(
    `rabbitmq: ${option} is ${JSON.stringify(value)}; it is one of ${allowed.join(', ')}`,
  )
}

function tlsOf(tls: TlsOptions | undefined, secure: boolean): TlsOptions {
  if (tls === undefined) return {}
  if (tls === null || typeof tls !== 'object')
    throw new OptionError('rabbitmq: tls must be an object')
  const unknown = Object.keys(tls).find((name) => !tlsNames.includes(name))
  if (unknown !== undefined) {
    throw new OptionError(
      `rabbitmq: tls has no option '${unknown}'; known are: ${tlsNames.join(', ')}`,
    )
  }
  if (!secure)
    throw new OptionError("rabbitmq: the option 'tls' needs a URL that begins with amqps:")
  return tls
}
