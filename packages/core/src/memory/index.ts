import type { Clock } from '../clock.js'
import type { DriverConfig, DriverModule } from '../driver.js'
import { ConflictError, ConnectionError, OptionError } from '../errors.js'
import { checkOptions } from '../options.js'
import { redact } from '../redact.js'
import { MemoryBroker } from './broker.js'
import { MemoryDriver } from './driver.js'
import type { MemoryOptions } from './options.js'

export type { MemoryBroker, MemoryFaults } from './broker.js'
export type { MemoryConnection } from './driver.js'

const defaults: Required<MemoryOptions> = {
  name: '',
  retain: 1000,
  maxBacklog: 1_000_000,
  maxBytes: 64 * 1024 * 1024,
  dedupeWindow: 0,
  partitions: 0,
}

const names = Object.keys(defaults) as (keyof MemoryOptions & string)[]
const numbers = names.filter((name) => name !== 'name')

/** Named brokers live as long as the process, as a server would. */
const brokers = new Map<string, MemoryBroker>()

function parseUrl(url: string) {
  try {
    const { host, pathname, searchParams } = new URL(url)
    return { name: decodeURIComponent(host + pathname.replace(/\/$/, '')), searchParams }
  } catch (error) {
    throw new OptionError(
      `'${redact(url)}' is no valid URL; for instance memory:// or memory://name?partitions=8`,
      { cause: error },
    )
  }
}

function readUrl(url: string): MemoryOptions {
  const options: Record<string, unknown> = {}
  const parsed = parseUrl(url)
  const { name } = parsed
  if (name !== '') options.name = name
  checkOptions(`the URL ${redact(url)}`, Object.fromEntries(parsed.searchParams), numbers)
  for (const [key, value] of parsed.searchParams)
    options[key] = value === '' ? Number.NaN : Number(value)
  return options
}

/** What the user asked for, in the URL and beside it. */
function askedFor(config: DriverConfig<MemoryOptions>): MemoryOptions {
  return { ...(config.url ? readUrl(config.url) : {}), ...config.options }
}

function withDefaults(asked: MemoryOptions): Required<MemoryOptions> {
  const options = { ...defaults, ...asked }
  for (const name of numbers) {
    const value = options[name]
    if (!Number.isInteger(value) || Number(value) < 0) {
      throw new OptionError(`the memory driver's ${name} must be a whole number ≥ 0, not ${value}`)
    }
  }
  return options
}

function brokerFor(asked: MemoryOptions, clock: Clock): MemoryBroker {
  const options = withDefaults(asked)
  const { name } = options
  if (name === '') return new MemoryBroker(clock, options)
  const broker = brokers.get(name)
  if (broker !== undefined) {
    checkSame(broker, asked)
    return broker
  }
  const made = new MemoryBroker(clock, options)
  brokers.set(name, made)
  return made
}

/** What is asked for must be what the broker has; what isn't asked for is as it is. */
function checkSame(broker: MemoryBroker, asked: MemoryOptions): void {
  for (const name of numbers) {
    if (asked[name] === undefined || asked[name] === broker.options[name]) continue
    throw new ConflictError(
      `the memory broker '${broker.options.name}' exists with ${name} ${broker.options[name]}, not ${asked[name]}; ` +
        'ask for the same, or for another name',
    )
  }
}

function untilRunning(broker: MemoryBroker, config: DriverConfig<MemoryOptions>): Promise<void> {
  if (broker.running) return Promise.resolve()
  return new Promise((resolve, reject) => {
    const timer = config.clock.setTimer(() => {
      forget()
      reject(
        new ConnectionError(`the memory broker did not start within ${config.connectTimeoutMs} ms`),
      )
    }, config.connectTimeoutMs)
    const forget = broker.onStart(() => {
      timer.cancel()
      forget()
      resolve()
    })
  })
}

/** The in-memory driver: a broker inside this process, with every capability that needs no disk. */
export const memory: DriverModule<MemoryOptions> = {
  name: 'memory',
  schemes: ['memory'],
  options: names,
  async connect(config) {
    const broker = brokerFor(askedFor(config), config.clock)
    await untilRunning(broker, config)
    return new MemoryDriver(broker, config)
  },
}
