import { type Clock, sleep } from '../clock.js'
import type { DeadLetterReason } from '../dead-letter.js'
import type { Driver, DriverSubscription, RetryRequest } from '../driver.js'
import { toError } from '../errors.js'
import type { Logger } from '../logger.js'
import { isPromise, type MaybePromise } from '../promise.js'
import { RetryLaterError } from '../retry-later.js'
import type { Announcer } from './announcer.js'
import type { CircuitView } from './circuit-view.js'
import type { Context } from './context.js'
import { describeFailure } from './failure.js'
import type { Settings } from './settings.js'

/** Pauses between attempts to settle, in milliseconds. */
const firstPause = 50
const longestPause = 5000

/** Reasons that say that the key's order is broken by a failure; an unreadable message says nothing of its key. */
const opensCircuit: ReadonlySet<DeadLetterReason> = new Set([
  'exhausted',
  'permanent',
  'delivery-limit',
])

function opens(reason: DeadLetterReason, trial: boolean): boolean {
  return opensCircuit.has(reason) || (trial && (reason === 'parked' || reason === 'requested'))
}

/** From here on nobody else can settle it. */
function begin(context: Context, by: NonNullable<Context['settledBy']>): void {
  context.settlement = 'settling'
  context.settledBy = by
}

export interface SettlerDeps {
  readonly driver: Driver
  readonly clock: Clock
  readonly announce: Announcer
  readonly logger: Logger
  readonly settings: Settings
  readonly circuits: CircuitView | undefined
  /** Aborts when nothing may be tried again. */
  readonly ended: AbortSignal
}

/**
 * Settles deliveries, each once. A settlement whose durable step fails is tried again until it succeeds, the delivery is
 * taken away, or closing runs out of time: in between the original stays unsettled at the broker.
 */
export class Settler {
  subscription!: DriverSubscription

  constructor(private readonly deps: SettlerDeps) {}

  /** The fast path: settles at once if the driver does. */
  ack(context: Context): MaybePromise<boolean> {
    if (context.settlement !== 'open') return false
    begin(context, 'ack')
    let first: Promise<boolean>
    try {
      const taken = this.subscription.ack(context.incoming)
      if (!isPromise(taken)) return this.#settled(context, taken)
      first = taken
    } catch (error) {
      first = Promise.reject(error)
    }
    return this.#persist(context, () => this.subscription.ack(context.incoming), first)
  }

  async retry(context: Context, delayMs: number, error: Error): Promise<boolean> {
    if (context.settlement !== 'open') return false
    const { settings, driver, clock, announce } = this.deps
    const request: RetryRequest = {
      delayMs,
      attempt: context.attempt + (error instanceof RetryLaterError && !error.counted ? 0 : 1),
      firstFailedAt: context.firstFailedAt ?? clock.now(),
      hold: settings.hold && context.key !== undefined,
    }
    const { capabilities } = driver
    const holder = request.hold ? capabilities.orderedRetry : capabilities.retry
    begin(context, 'retry')
    let taken: boolean
    if (holder === 'process') {
      context.again = { request, dueAt: clock.now() + delayMs }
      taken = this.#settled(context, !context.revoked)
    } else {
      taken = await this.#persist(context, () => this.subscription.retry(context.incoming, request))
    }
    if (taken) announce.retried(context, error, delayMs)
    return taken
  }

  /** To the dead letters, or away if the policy keeps none. */
  async bury(context: Context, error: Error, reason: DeadLetterReason): Promise<boolean> {
    if (context.settlement !== 'open') return false
    const { settings, clock, announce, logger } = this.deps
    begin(context, 'dead-letter')
    const { id, key } = context.incoming.message
    const now = clock.now()
    const failure = describeFailure(
      error,
      reason,
      {
        attempts: context.attempt,
        topic: context.topic,
        group: context.group,
        firstFailedAt: context.firstFailedAt ?? now,
        lastFailedAt: now,
      },
      settings.deadLetter.maxStack,
    )
    const taken = await this.#persist(context, async () => {
      // First the circuit: a crash in between then parks this message too, instead of letting its successors pass.
      if (key !== undefined && opens(reason, context.trial)) {
        await this.#open(key, failure.errorMessage)
      }
      if (settings.deadLetter.keep) return this.subscription.deadLetter(context.incoming, failure)
      return this.subscription.ack(context.incoming)
    })
    if (!taken) return false
    announce.buried(context, error, reason, settings.deadLetter.keep)
    if (!settings.deadLetter.keep) {
      logger.warn(`message ${id} of '${context.topic}' was discarded in group '${context.group}'`, {
        reason,
        error: failure.errorMessage,
      })
    }
    return true
  }

  async #open(key: string, why: string): Promise<void> {
    if (this.deps.circuits === undefined) return
    await this.deps.circuits.open(key, why)
    this.deps.announce.circuit(key, 'open')
  }

  /**
   * Gives deliveries back that were not started, or whose start doesn't count. Resolves to those that the broker didn't take:
   * they are still this consumer's, and open.
   */
  async handBack(contexts: readonly Context[]): Promise<readonly Context[]> {
    const open = contexts.filter((context) => context.settlement === 'open' && !context.revoked)
    if (open.length === 0) return []
    for (const context of open) begin(context, 'hand-back')
    const { announce, logger } = this.deps
    try {
      await this.subscription.release(open.map((context) => context.incoming))
    } catch (error) {
      logger.warn(`handing back ${open.length} messages failed`, { error: toError(error).message })
      for (const context of open) {
        context.settlement = 'open'
        context.settledBy = undefined
      }
      return open.filter((context) => !context.revoked)
    }
    for (const context of open) this.#settled(context, true)
    announce.returned(open.length)
    return []
  }

  /** It was taken away, and whoever had it is done with it. */
  lose(context: Context): false {
    this.#settled(context, false)
    return false
  }

  #settled(context: Context, taken: boolean): boolean {
    context.settlement = taken ? 'settled' : 'lost'
    context.onSettled?.()
    return taken
  }

  async #persist(
    context: Context,
    step: () => MaybePromise<boolean>,
    first?: Promise<boolean>,
  ): Promise<boolean> {
    const { announce, logger, clock, ended } = this.deps
    for (let failures = 0; ; failures++) {
      try {
        return this.#settled(context, await (failures === 0 && first ? first : step()))
      } catch (thrown) {
        const error = toError(thrown)
        announce.settleFailed(context, error)
        logger.warn(`settling message ${context.incoming.message.id} failed; it stays unsettled`, {
          topic: context.topic,
          group: context.group,
          error: error.message,
        })
      }
      if (!context.revoked) {
        await sleep(clock, Math.min(longestPause, firstPause * 2 ** Math.min(failures, 10)), ended)
      }
      if (context.revoked || ended.aborted) return this.#settled(context, false)
    }
  }
}
