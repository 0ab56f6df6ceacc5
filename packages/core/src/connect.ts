import { checkSignal } from './abort.js'
import type { Bus } from './api.js'
import { LongshoreBus } from './bus.js'
import { type Clock, systemClock, type Timer } from './clock.js'
import type { BusOptions, Connect, ConnectConfig, ModuleConfig } from './connect-types.js'
import type { Driver, DriverConfig, DriverModule, DriverStatus } from './driver.js'
import { toMs } from './duration.js'
import { ConnectionError, OptionError, wrapDriverError } from './errors.js'
import { createEvents } from './events.js'
import { consoleLogger, guardedLogger } from './logger.js'
import { checkOptions, yesOrNo } from './options.js'
import { findDriver } from './registry.js'

const busOptions = [
  'publish',
  'consume',
  'connectTimeout',
  'autoCreate',
  'logger',
  'clock',
  'signal',
] as const satisfies readonly (keyof BusOptions)[]

/** A driver keeps to `connectTimeout` itself; one that doesn't is given up so many milliseconds later. */
const graceMs = 1000

type AnyConfig = ConnectConfig | ModuleConfig<object>

/**
 * Connects to a broker: by URL (`amqp:// nats:// kafka:// postgres:// redis:// pglite:// memory://`), by a driver's name, or
 * with a driver of your own.
 * @throws UnknownDriverError, DriverNotInstalledError, UnknownOptionError, OptionError, AccessError; ConnectionError if the
 *   broker doesn't answer within `connectTimeout` (default 10 s)
 */
export const connect: Connect = async (
  target: string | AnyConfig,
  options: BusOptions = {},
): Promise<Bus> => {
  const config = toConfig(target, options)
  checkOptions('connect', config, [...busOptions, 'url', 'driver', 'options'])
  checkSignal('connect', config.signal)
  if (config.autoCreate !== undefined) yesOrNo('autoCreate', config.autoCreate)
  if (config.clock !== undefined && typeof config.clock?.setTimer !== 'function') {
    throw new OptionError('clock must have now() and setTimer(); leave it out outside of tests')
  }
  const module = await findDriver(config)
  const driverOptions = config.options ?? {}
  checkOptions(`connect: the options of driver '${module.name}'`, driverOptions, module.options)
  const clock = config.clock ?? systemClock
  const logger = guardedLogger(config.logger ?? consoleLogger)
  const connectTimeoutMs = toMs(config.connectTimeout ?? 10_000, 'connectTimeout')
  const events = createEvents()
  let status: DriverStatus = { state: 'up' }
  const driver = await patiently(
    connectTo(module, {
      url: config.url,
      options: driverOptions,
      connectTimeoutMs,
      autoCreate: config.autoCreate ?? true,
      clock,
      logger,
      onStatus(next) {
        status = next
        if (events.connection.active) events.connection.emit({ driver: module.name, ...next })
      },
    }),
    module,
    config.signal,
    clock,
    connectTimeoutMs + graceMs,
  )
  try {
    return new LongshoreBus({
      driver,
      clock,
      logger,
      events,
      options: config,
      status: () => status,
    })
  } catch (error) {
    await driver.close(0)
    throw error
  }
}

function toConfig(target: string | AnyConfig, options: BusOptions): AnyConfig {
  if (typeof target === 'string') return { ...options, url: target }
  if (target !== null && typeof target === 'object') {
    if (Object.keys(options).length === 0) return target
    throw new OptionError(
      'connect(config) takes everything in one object; put the options beside driver and url',
    )
  }
  throw new OptionError(
    "connect() takes a URL such as 'memory://' or a config such as { driver: 'memory' }",
  )
}

/** A driver may throw at once as well as reject. */
async function connectTo(module: DriverModule, config: DriverConfig): Promise<Driver> {
  return module.connect(config)
}

/** Waits for the connection, but not for longer than the caller wants; a connection that comes too late is closed. */
async function patiently(
  connecting: Promise<Driver>,
  module: DriverModule,
  signal: AbortSignal | undefined,
  clock: Clock,
  limitMs: number,
): Promise<Driver> {
  let onAbort: (() => void) | undefined
  let timer: Timer | undefined
  const giveUp = new Promise<never>((_, reject) => {
    const late = (text: string, cause?: unknown) => {
      connecting.then((driver) => driver.close(0)).catch(() => {})
      reject(new ConnectionError(`connecting to ${module.name} ${text}`, { cause }))
    }
    timer = clock.setTimer(() => late(`took longer than ${limitMs} ms`), limitMs)
    onAbort = () => late('was aborted', signal?.reason)
    if (signal?.aborted) onAbort()
    else signal?.addEventListener('abort', onAbort, { once: true })
  })
  try {
    return await Promise.race([connecting, giveUp])
  } catch (error) {
    throw wrapDriverError(error, `connecting to ${module.name}`)
  } finally {
    timer?.cancel()
    if (onAbort !== undefined) signal?.removeEventListener('abort', onAbort)
  }
}
