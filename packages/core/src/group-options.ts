import type { Driver, SubscriptionSpec } from './driver.js'
import { OptionError } from './errors.js'
import { oneOf } from './options.js'
import { checkRoutes } from './routes.js'
import { unsupported } from './support.js'

type GroupSpec = Pick<SubscriptionSpec, 'order' | 'from' | 'routes'>

interface Given {
  readonly order?: 'none' | 'key'
  readonly from?: 'latest' | 'earliest' | Date
  readonly routes?: readonly string[] | undefined
}

/**
 * The options that make a group, checked, with their defaults.
 * @throws OptionError, UnsupportedError
 */
export function resolveGroup(where: string, given: Given, driver: Driver): GroupSpec {
  const { order = 'none', from = 'latest' } = given
  const { capabilities } = driver
  oneOf('order', order, ['none', 'key'])
  if (!capabilities.groups) {
    throw unsupported(driver, 'groups', 'sharing a topic among the members of a group')
  }
  if (order === 'key' && capabilities.order !== 'key') {
    throw unsupported(driver, 'order', "order: 'key' across the members of a group")
  }
  if (from !== 'latest') {
    if (from !== 'earliest' && !(from instanceof Date && !Number.isNaN(from.getTime()))) {
      throw new OptionError(`${where}: from is 'latest', 'earliest' or a valid Date`)
    }
    if (!capabilities.replay) throw unsupported(driver, 'replay', `from: ${JSON.stringify(from)}`)
  }
  return { order, from, routes: checkRoutes(where, driver, given.routes) }
}
