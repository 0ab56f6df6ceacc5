import type { Driver } from './driver.js'
import { OptionError, show } from './errors.js'
import { unsupported } from './support.js'

/** Short enough for an AMQP routing key (255 bytes) and a Kafka header, with what drivers add. */
const longest = 100

const exact = /^[\w-]+(?:\.[\w-]+)*$/
const withWildcards = /^(?:[\w-]+|[*#])(?:\.(?:[\w-]+|[*#]))*$/

/** @throws OptionError, UnsupportedError */
export function checkRoute(driver: Driver, route: unknown): string {
  if (driver.capabilities.routing === 'none') throw unsupported(driver, 'routing', "option 'route'")
  if (typeof route === 'string' && route.length <= longest && exact.test(route)) return route
  throw new OptionError(
    `route is ${show(route)}; it is words of letters, digits, '_' and '-', joined by '.', ` +
      `${longest} characters at most; leave it out for none`,
  )
}

/**
 * What a group chooses by, sorted and without repeats, so that the same choice always looks the same.
 * @throws OptionError, UnsupportedError
 */
export function checkRoutes(
  where: string,
  driver: Driver,
  routes: unknown,
): readonly string[] | undefined {
  if (routes === undefined) return undefined
  const { routing } = driver.capabilities
  if (routing === 'none') throw unsupported(driver, 'routing', "option 'routes'")
  if (!Array.isArray(routes) || routes.length === 0) {
    throw new OptionError(
      `${where}: routes is ${show(routes)}; it is an array of at least one route; leave it out for all messages`,
    )
  }
  for (const route of routes) {
    if (typeof route !== 'string' || route.length > longest || !withWildcards.test(route)) {
      throw new OptionError(
        `${where}: routes has ${show(route)}; it is words of letters, digits, '_' and '-', or '*' (one word) or '#' ` +
          `(any number of words), joined by '.', ${longest} characters at most`,
      )
    }
    if (routing === 'exact' && hasWildcard(route)) {
      throw unsupported(driver, 'routing', `wildcards in option 'routes' (${route})`)
    }
  }
  return [...new Set<string>(routes)].sort()
}

const hasWildcard = (route: string) => /[*#]/.test(route)

/**
 * Whether a route matches one of these, by AMQP's rules: `*` stands for one word, `#` for any number of words, none included.
 * No route is like an empty one.
 */
export function routeMatcher(routes: readonly string[]): (route: string | undefined) => boolean {
  const literal = new Set(routes.filter((route) => !hasWildcard(route)))
  const patterns = routes.filter(hasWildcard).map((route) => route.split('.'))
  return (route) => {
    if (route !== undefined && literal.has(route)) return true
    if (patterns.length === 0) return false
    const words = route === undefined || route === '' ? [] : route.split('.')
    return patterns.some((pattern) => fits(pattern, words))
  }
}

/** Goes back to the latest `#` only, so its time is bounded by the product of the lengths. */
function fits(pattern: readonly string[], words: readonly string[]): boolean {
  let p = 0
  let w = 0
  /** Where the latest `#` stands, and the word up to which it reaches. */
  let hash = -1
  let reach = 0
  while (w < words.length) {
    if (pattern[p] === '#') {
      hash = p++
      reach = w
    } else if (pattern[p] === '*' || pattern[p] === words[w]) {
      p++
      w++
    } else if (hash >= 0) {
      p = hash + 1
      w = ++reach
    } else {
      return false
    }
  }
  while (pattern[p] === '#') p++
  return p === pattern.length
}
