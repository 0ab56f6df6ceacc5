import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type ConnectConfig, knownDrivers, type ModuleConfig } from './connect-types.js'
import type { DriverModule } from './driver.js'
import { DriverNotInstalledError, OptionError, UnknownDriverError } from './errors.js'
import { memory } from './memory/index.js'
import { nearest } from './options.js'
import { redact } from './redact.js'

/** A driver that can be asked for by name or scheme, and how to get it. */
interface Entry {
  readonly schemes: readonly string[]
  load(name: string): Promise<DriverModule>
}

const entries = new Map<string, Entry>()

for (const [name, { schemes, package: specifier }] of Object.entries(knownDrivers)) {
  const load = specifier === undefined ? async () => memory : () => importDriver(name, specifier)
  entries.set(name, { schemes, load })
}

/**
 * Makes a driver of your own known to `connect`, by its name and its URL schemes, for this process. (Or pass it as it is:
 * `connect({ driver })`.) The same module again does nothing.
 * @throws OptionError if it is no driver, or its name or a scheme is taken by another one
 */
export function registerDriver(module: DriverModule): void {
  const { name, schemes } = checkModule(module, 'the given driver')
  if (registered.get(name) === module) return
  if (entries.has(name))
    throw new OptionError(`there is a driver '${name}' already; choose another name`)
  const taken = schemes.find((scheme) => driverOfScheme(scheme) !== undefined)
  if (taken !== undefined)
    throw new OptionError(`driver '${name}': the URL scheme '${taken}:' is taken`)
  registered.set(name, module)
  entries.set(name, { schemes, load: async () => module })
}

const registered = new Map<string, DriverModule>()

/**
 * The driver that a config asks for; packages are imported on demand.
 * @throws OptionError, UnknownDriverError, DriverNotInstalledError
 */
export async function findDriver(
  config: ConnectConfig | ModuleConfig<object>,
): Promise<DriverModule> {
  const { driver, url } = config
  if (driver !== undefined && typeof driver !== 'string') {
    return checkModule(driver, 'the given driver')
  }
  if (driver === undefined && url === undefined) {
    throw new OptionError("connect() needs a url or a driver, for instance connect('memory://')")
  }
  const name = driver ?? driverOfUrl(url as string)
  const entry = entries.get(name)
  if (entry === undefined) {
    throw new UnknownDriverError(
      `there is no driver '${name}'; ${hint(name, [...entries.keys()])}. A driver of your own is passed as an object: ` +
        'connect({ driver: acme }), or made known by registerDriver(acme)',
    )
  }
  if (driver !== undefined && url !== undefined) checkScheme(url, name, entry.schemes)
  return entry.load(name)
}

const hint = (given: string, known: readonly string[], after = ''): string => {
  const near = nearest(given, known)
  return near === undefined ? `known are: ${known.join(', ')}` : `did you mean '${near}${after}'?`
}

function schemeOf(url: string): string {
  const match = /^([a-z][a-z0-9+.-]*):/i.exec(url)
  if (match === null) {
    throw new OptionError(
      `'${redact(url)}' is no URL; it must begin with a scheme, such as memory:// or amqp://`,
    )
  }
  return match[1]!.toLowerCase()
}

function driverOfScheme(scheme: string): string | undefined {
  for (const [name, { schemes }] of entries) if (schemes.includes(scheme)) return name
  return undefined
}

function driverOfUrl(url: string): string {
  const scheme = schemeOf(url)
  const name = driverOfScheme(scheme)
  if (name !== undefined) return name
  const all = [...entries.values()].flatMap(({ schemes }) => schemes)
  throw new UnknownDriverError(
    `no driver has the URL scheme '${scheme}:'; ${hint(scheme, all, ':')}`,
  )
}

function checkScheme(url: string, name: string, schemes: readonly string[]): void {
  const scheme = schemeOf(url)
  if (schemes.includes(scheme)) return
  throw new OptionError(
    `driver '${name}' takes URLs with the scheme ${schemes.join(' or ')}, not '${scheme}'`,
  )
}

async function importDriver(name: string, specifier: string): Promise<DriverModule> {
  const exported = await importFor(specifier)
  if (exported === undefined) {
    throw new DriverNotInstalledError(
      `the ${name} driver is not installed; run: npm install ${specifier}`,
    )
  }
  return checkModule((exported as { driver?: unknown }).driver, specifier)
}

/**
 * Imports from here, else from the application: with strict package managers the core can't see what the application
 * installed.
 */
async function importFor(specifier: string): Promise<unknown> {
  const own = await importIfThere(specifier)
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
async function importIfThere(specifier: string): Promise<unknown> {
  try {
    return await import(specifier)
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
    Array.isArray(module.schemes) &&
    Array.isArray(module.options)
  ) {
    return module as DriverModule
  }
  throw new OptionError(
    `${origin} is no Longshore driver: it must have name, schemes, options and connect`,
  )
}
