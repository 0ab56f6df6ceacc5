import type { Bus } from './api.js'
import { LongshoreBus } from './bus.js'
import { systemClock } from './clock.js'
import type { BusOptions, Connect, ConnectConfig, ModuleConfig } from './connect-types.js'
import type { Driver, DriverConfig, DriverModule, DriverStatus } from './driver.js'
import { toMs } from './duration.js'
import { ConnectionError, OptionError, wrapDriverError } from './errors.js'
import { createEvents } from './events.js'
import { consoleLogger } from './logger.js'
import { checkOptions } from './options.js'
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
  const module = await findDriver(config)
  const driverOptions = config.options ?? {}
  checkOptions(`connect: the options of driver '${module.name}'`, driverOptions, module.options)
  const clock = config.clock ?? systemClock
  const logger = config.logger ?? consoleLogger
  const events = createEvents()
  let status: DriverStatus = { state: 'up' }
  const driver = await patiently(
    connectTo(module, {
      url: config.url,
      options: driverOptions,
      connectTimeoutMs: toMs(config.connectTimeout ?? 10_000, 'connectTimeout'),
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
  if (target !== null && typeof target === 'object') return target
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
): Promise<Driver> {
  const late = () => {
    connecting.then((driver) => driver.close(0)).catch(() => {})
    return new ConnectionError(`connecting to ${module.name} was aborted`, {
      cause: signal?.reason,
    })
  }
  let onAbort: (() => void) | undefined
  try {
    if (signal === undefined) return await connecting
    return await Promise.race([
      connecting,
      new Promise<never>((_, reject) => {
        onAbort = () => reject(late())
        if (signal.aborted) onAbort()
        else signal.addEventListener('abort', onAbort, { once: true })
      }),
    ])
  } catch (error) {
    throw wrapDriverError(error, `connecting to ${module.name}`)
  } finally {
    if (onAbort !== undefined) signal?.removeEventListener('abort', onAbort)
  }
}
