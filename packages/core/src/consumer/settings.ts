import type { ConsumeMiddleware, ConsumeOptions, SubscribeBatchOptions } from '../api.js'
import type { CircuitStore } from '../circuits.js'
import type { Clock } from '../clock.js'
import type { Driver, SubscriptionSpec } from '../driver.js'
import { toMs } from '../duration.js'
import { OptionError } from '../errors.js'
import { checkName } from '../names.js'
import { checkMiddleware, checkOptions } from '../options.js'
import { unsupported } from '../support.js'
import {
  type ResolvedDeadLetter,
  type ResolvedRetry,
  resolveDeadLetter,
  resolveRetry,
  whole,
} from './failure.js'
import { KillSwitch } from './kill-switch.js'

const consumeOptions = [
  'group',
  'concurrency',
  'order',
  'onKeyFailure',
  'park',
  'from',
  'retry',
  'deadLetter',
  'timeout',
  'killSwitch',
  'middleware',
  'prefetch',
  'lease',
  'circuits',
  'signal',
] as const satisfies readonly (keyof ConsumeOptions)[]

const batchOptions = [
  ...consumeOptions,
  'batchSize',
  'batchWait',
] as const satisfies readonly (keyof SubscribeBatchOptions)[]

/** The options of a subscription, checked, with their defaults, in milliseconds. */
export interface Settings {
  readonly spec: SubscriptionSpec
  readonly concurrency: number
  /** A failing message holds its key back. */
  readonly hold: boolean
  /** There if `onKeyFailure` is `park`. */
  readonly circuits: CircuitStore | undefined
  readonly coolDownMs: number | undefined
  readonly retry: ResolvedRetry
  readonly customRetry: ConsumeMiddleware | undefined
  readonly deadLetter: ResolvedDeadLetter
  readonly customDeadLetter: ConsumeMiddleware | undefined
  readonly timeoutMs: number | undefined
  readonly killSwitch: KillSwitch | undefined
  readonly middleware: readonly ConsumeMiddleware[]
  readonly signal: AbortSignal | undefined
}

/**
 * @param units deliveries in one handler call for batches, else 0
 * @throws OptionError, NameError, UnsupportedError
 */
export function resolveSettings(
  topic: string,
  options: ConsumeOptions,
  driver: Driver,
  clock: Clock,
  units = 0,
): Settings {
  const where = `subscribe('${topic}')`
  if (options === null || typeof options !== 'object') {
    throw new OptionError(`${where} needs options with at least a group: { group: 'billing' }`)
  }
  checkOptions(where, options, units === 0 ? consumeOptions : batchOptions)
  checkName('group', options.group)
  const { order = 'none', onKeyFailure = 'block', from = 'latest', concurrency = 1 } = options
  oneOf('order', order, ['none', 'key'])
  oneOf('onKeyFailure', onKeyFailure, ['block', 'park', 'skip'])
  whole('concurrency', concurrency, 1)
  if (order !== 'key' && options.onKeyFailure !== undefined) {
    throw new OptionError(`${where}: onKeyFailure needs order: 'key'`)
  }
  if (options.park !== undefined) {
    if (onKeyFailure !== 'park' || order !== 'key') {
      throw new OptionError(`${where}: park needs order: 'key' and onKeyFailure: 'park'`)
    }
    checkOptions(`${where}: park`, options.park, ['coolDown'])
  }
  const { capabilities } = driver
  if (!capabilities.groups)
    throw unsupported(driver, 'groups', 'sharing a topic among the members of a group')
  if (order === 'key' && capabilities.order !== 'key') {
    throw unsupported(driver, 'order', "order: 'key' across the members of a group")
  }
  if (from !== 'latest') {
    if (from !== 'earliest' && !(from instanceof Date && !Number.isNaN(from.getTime()))) {
      throw new OptionError(`${where}: from is 'latest', 'earliest' or a valid Date`)
    }
    if (!capabilities.replay) throw unsupported(driver, 'replay', `from: ${JSON.stringify(from)}`)
  }
  const leaseMs = toMs(options.lease ?? 30_000, 'lease')
  if (options.lease !== undefined && !capabilities.lease)
    throw unsupported(driver, 'lease', "option 'lease'")
  if (leaseMs < 30) throw new OptionError(`${where}: a lease needs at least 30 ms`)
  const parks = order === 'key' && onKeyFailure === 'park'
  const circuits = parks ? (options.circuits ?? driver.circuits) : undefined
  if (parks && circuits === undefined) {
    throw unsupported(
      driver,
      'circuits',
      "onKeyFailure: 'park' without a CircuitStore in option 'circuits'",
    )
  }
  const middleware = options.middleware ?? []
  checkMiddleware(`${where}: middleware`, middleware)
  const handlers = concurrency * Math.max(1, units)
  const window = windowOf(options, handlers, order)
  return {
    spec: { topic, group: options.group, order, window, from, leaseMs },
    concurrency: handlers,
    hold: order === 'key' && onKeyFailure !== 'skip',
    circuits,
    coolDownMs:
      options.park?.coolDown === undefined
        ? undefined
        : toMs(options.park.coolDown, 'park.coolDown'),
    retry: resolveRetry(typeof options.retry === 'function' ? {} : options.retry),
    customRetry: typeof options.retry === 'function' ? options.retry : undefined,
    deadLetter: resolveDeadLetter(
      typeof options.deadLetter === 'function' ? {} : options.deadLetter,
    ),
    customDeadLetter: typeof options.deadLetter === 'function' ? options.deadLetter : undefined,
    timeoutMs: options.timeout === undefined ? undefined : toMs(options.timeout, 'timeout'),
    killSwitch: killSwitchOf(options, clock),
    middleware,
    signal: options.signal,
  }
}

function windowOf(options: ConsumeOptions, concurrency: number, order: 'none' | 'key'): number {
  if (options.prefetch === undefined)
    return order === 'key' ? Math.max(64, concurrency * 2) : concurrency * 2
  whole('prefetch', options.prefetch, 1)
  return options.prefetch
}

function killSwitchOf({ killSwitch }: ConsumeOptions, clock: Clock): KillSwitch | undefined {
  if (killSwitch === undefined || killSwitch === false) return undefined
  return new KillSwitch(killSwitch === true ? {} : killSwitch, clock)
}

function oneOf(option: string, value: string, allowed: readonly string[]): void {
  if (allowed.includes(value)) return
  throw new OptionError(
    `${option} is ${JSON.stringify(value)}; it is one of ${allowed.map((each) => `'${each}'`).join(', ')}`,
  )
}
