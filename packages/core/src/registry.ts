import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type ConnectConfig, knownDrivers, type ModuleConfig } from './connect-types.js'
import type { DriverModule } from './driver.js'
import { DriverNotInstalledError, OptionError, UnknownDriverError } from './errors.js'
import { memory } from './memory/index.js'
import { nearest } from './options.js'

type Known = keyof typeof knownDrivers

/**
 * The driver that a config asks for; packages are imported on demand.
 * @throws OptionError, UnknownDriverError, DriverNotInstalledError
 */
export async function findDriver(
  config: ConnectConfig | ModuleConfig<object>,
): Promise<DriverModule> {
  const { driver, url } = config
  if (driver !== undefined && typeof driver !== 'string')
    return checkModule(driver, 'the given driver')
  if (driver === undefined && url === undefined) {
    throw new OptionError("connect() needs a url or a driver, for instance connect('memory://')")
  }
  const name = driver ?? driverOfUrl(url as string)
  if (!Object.hasOwn(knownDrivers, name)) {
    const near = nearest(name, Object.keys(knownDrivers))
    const hint =
      near === undefined
        ? `known are: ${Object.keys(knownDrivers).join(', ')}`
        : `did you mean '${near}'?`
    throw new UnknownDriverError(
      `there is no driver '${name}'; ${hint}. A driver of your own is passed as an object: connect({ driver: acme })`,
    )
  }
  const known = knownDrivers[name as Known]
  if (driver !== undefined && url !== undefined) checkScheme(url, name, known.schemes)
  return known.package === undefined ? memory : load(name, known.package)
}

function schemeOf(url: string): string {
  const match = /^([a-z][a-z0-9+.-]*):/i.exec(url)
  if (match === null) {
    throw new OptionError(
      `'${url}' is no URL; it must begin with a scheme, such as memory:// or amqp://`,
    )
  }
  return match[1]!.toLowerCase()
}

function driverOfUrl(url: string): string {
  const scheme = schemeOf(url)
  const schemes = Object.entries(knownDrivers).flatMap(([name, { schemes }]) =>
    schemes.map((known) => [known as string, name] as const),
  )
  const found = schemes.find(([known]) => known === scheme)
  if (found !== undefined) return found[1]
  const all = schemes.map(([known]) => known)
  const near = nearest(scheme, all)
  throw new UnknownDriverError(
    `no driver has the URL scheme '${scheme}:'; ${near === undefined ? `known are: ${all.join(', ')}` : `did you mean '${near}:'?`}`,
  )
}

function checkScheme(url: string, name: string, schemes: readonly string[]): void {
  const scheme = schemeOf(url)
  if (schemes.includes(scheme)) return
  throw new OptionError(
    `driver '${name}' takes URLs with the scheme ${schemes.join(' or ')}, not '${scheme}'`,
  )
}

async function load(name: string, specifier: string): Promise<DriverModule> {
  const exported = await importFor(specifier)
  if (exported === undefined) {
    throw new DriverNotInstalledError(
      `the ${name} driver is not installed; run: npm install ${specifier}`,
    )
  }
  return checkModule((exported as { driver?: unknown }).driver, specifier)
}

/** Imports from here, else from the application: with strict package managers the core can't see what the application installed. */
async function importFor(specifier: string): Promise<unknown> {
  const own = await importOr(specifier, specifier)
  if (own !== undefined) return own
  const entry = process.argv[1]
  for (const base of [
    join(process.cwd(), 'package.json'),
    ...(entry === undefined ? [] : [entry]),
  ]) {
    let path: string
    try {
      path = createRequire(pathToFileURL(base)).resolve(specifier)
    } catch {
      continue
    }
    return import(pathToFileURL(path).href)
  }
  return undefined
}

/** Undefined if the package itself is missing; anything else that goes wrong in it is thrown. */
async function importOr(specifier: string, target: string): Promise<unknown> {
  try {
    return await import(target)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ERR_MODULE_NOT_FOUND' && message.includes(`'${specifier}'`)) return undefined
    throw error
  }
}

function checkModule(value: unknown, origin: string): DriverModule {
  const module = value as Partial<DriverModule> | undefined
  if (
    typeof module?.connect === 'function' &&
    typeof module.name === 'string' &&
    Array.isArray(module.options)
  ) {
    return module as DriverModule
  }
  throw new OptionError(
    `${origin} is no Longshore driver: it must have name, schemes, options and connect`,
  )
}
