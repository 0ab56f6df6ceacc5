import type { Capabilities } from './capabilities.js'
import { UnsupportedError } from './errors.js'

interface Named {
  readonly name: string
  readonly server: string
}

/** The error for what a driver, on the server that it found, can't do. */
export function unsupported(
  driver: Named,
  capability: keyof Capabilities,
  what: string,
): UnsupportedError {
  return new UnsupportedError(
    `${driver.name} (${driver.server}) can't do this: ${what}. Leave it out, or use a driver with the capability ` +
      `'${capability}' (docs/capabilities.md)`,
    capability,
    driver.name,
  )
}
