import { checkSignal } from '../abort.js'
import type {
  ConsumeMiddleware,
  ConsumeOptions,
  SubscribeBatchOptions,
  SubscribeOptions,
} from '../api.js'
import type { CircuitStore } from '../circuits.js'
import type { Clock } from '../clock.js'
import type { Driver, SubscriptionSpec } from '../driver.js'
import { toMs } from '../duration.js'
import { OptionError } from '../errors.js'
import { resolveGroup } from '../group-options.js'
import { checkName } from '../names.js'
import { checkMiddleware, checkOptions, oneOf } from '../options.js'
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
  'routes',
  'retry',
  'deadLetter',
  'killSwitch',
  'middleware',
  'prefetch',
  'lease',
  'circuits',
  'signal',
] as const satisfies readonly (keyof ConsumeOptions)[]

const subscribeOptions = [
  ...consumeOptions,
  'timeout',
] as const satisfies readonly (keyof SubscribeOptions)[]

const batchOptions = [
  ...subscribeOptions,
  'batchSize',
  'batchWait',
] as const satisfies readonly (keyof SubscribeBatchOptions)[]

/** By the method that takes them. */
const optionsOf = {
  subscribe: subscribeOptions,
  subscribeBatch: batchOptions,
  consume: consumeOptions,
}

export type Call = keyof typeof optionsOf

export interface BatchSettings {
  readonly size: number
  readonly waitMs: number
  /** Batches at once. */
  readonly concurrency: number
}

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
  /** There for `subscribeBatch`. */
  readonly batch: BatchSettings | undefined
  readonly killSwitch: KillSwitch | undefined
  readonly middleware: readonly ConsumeMiddleware[]
  readonly signal: AbortSignal | undefined
}

/**
 * @throws OptionError, NameError, UnsupportedError
 */
export function resolveSettings(
  call: Call,
  topic: string,
  options: SubscribeBatchOptions,
  driver: Driver,
  clock: Clock,
): Settings {
  const where = `${call}('${topic}')`
  if (options === null || typeof options !== 'object') {
    throw new OptionError(`${where} needs options with at least a group: { group: 'billing' }`)
  }
  checkOptions(where, options, optionsOf[call])
  checkName('group', options.group)
  const { onKeyFailure = 'block', concurrency = 1 } = options
  const { order, from, routes } = resolveGroup(where, options, driver)
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
  const leaseMs = toMs(options.lease ?? 30_000, 'lease')
  if (options.lease !== undefined && !driver.capabilities.lease)
    throw unsupported(driver, 'lease', "option 'lease'")
  if (leaseMs < 30) throw new OptionError(`${where}: a lease needs at least 30 ms`)
  const parks = order === 'key' && onKeyFailure === 'park'
  const circuits = parks ? (options.circuits ?? driver.circuits) : undefined
  if (options.circuits !== undefined) {
    if (!parks)
      throw new OptionError(`${where}: circuits needs order: 'key' and onKeyFailure: 'park'`)
    if (typeof options.circuits?.watch !== 'function') {
      throw new OptionError(`${where}: circuits must be a CircuitStore (list, open, close, watch)`)
    }
  }
  if (parks && circuits === undefined) {
    throw unsupported(
      driver,
      'circuits',
      "onKeyFailure: 'park' without a CircuitStore in option 'circuits'",
    )
  }
  const middleware = options.middleware ?? []
  checkMiddleware(`${where}: middleware`, middleware)
  checkSignal(where, options.signal)
  const batch = call === 'subscribeBatch' ? batchOf(options, concurrency) : undefined
  const handlers = concurrency * (batch?.size ?? 1)
  const window = windowOf(options, handlers, order)
  return {
    spec: { topic, group: options.group, order, window, from, routes, leaseMs },
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
    timeoutMs: timeoutOf(where, options),
    batch,
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

function timeoutOf(where: string, { timeout }: SubscribeOptions): number | undefined {
  if (timeout === undefined) return undefined
  const ms = toMs(timeout, 'timeout')
  if (ms > 0) return ms
  throw new OptionError(`${where}: a timeout of 0 would fail every handler; leave it out for none`)
}

function batchOf(options: SubscribeBatchOptions, concurrency: number): BatchSettings {
  const { batchSize = 100, batchWait = 100 } = options
  whole('batchSize', batchSize, 1)
  return { size: batchSize, waitMs: toMs(batchWait, 'batchWait'), concurrency }
}

function killSwitchOf({ killSwitch }: ConsumeOptions, clock: Clock): KillSwitch | undefined {
  if (killSwitch === undefined || killSwitch === false) return undefined
  return new KillSwitch(killSwitch === true ? {} : killSwitch, clock)
}
