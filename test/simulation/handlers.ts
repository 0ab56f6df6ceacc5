import {
  type BatchHandler,
  type ConsumeContext,
  type ConsumeMiddleware,
  type Delivery,
  type Handler,
  type Message,
  PermanentError,
  RetryLaterError,
} from '@longshore/core'
import type { IncomingDelivery } from '@longshore/core/driver'
import type { Connection } from './connection.js'
import { type GroupRecord, numberOf, type Run } from './ledger.js'
import { type Step, stepsOf } from './plan.js'
import { begin, end, leave } from './rules.js'

export interface Payload {
  readonly n: number
  readonly text: string
}

/** Of a process that is no more. */
const never = new Promise<never>(() => {})

const later = 40

/** The user's code of one member: does with each message what the plan says, and tells the ledger. */
export class Workload {
  readonly #steps = new Map<number, (execution: number) => Step>()
  readonly #runs = new Map<unknown, Run>()

  constructor(
    private readonly connection: Connection,
    private readonly group: () => GroupRecord,
  ) {}

  get #world() {
    return this.connection.world
  }

  #step(n: number): Step {
    const group = this.group()
    let steps = this.#steps.get(n)
    if (steps === undefined) {
      steps = stepsOf(this.#world.plan, group.plan, n)
      this.#steps.set(n, steps)
    }
    return steps(this.#world.ledger.fate(group, n).executions++)
  }

  #wait(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#world.clock.setTimer(resolve, ms)
      signal?.addEventListener('abort', () => {
        timer.cancel()
        resolve()
      })
    })
  }

  /** Goes around each attempt, so that the ledger sees it begin and end. */
  readonly watch: ConsumeMiddleware = (context, next) => {
    if (this.connection.dead) return never
    const { ledger, flaw } = this.#world
    const { incoming } = context as unknown as { incoming: IncomingDelivery }
    const run = begin(ledger, ledger.held.get(incoming)!, context, context.attempt)
    this.#runs.set(context, run)
    const ended = (failed: boolean, error?: unknown) => {
      if (this.connection.dead) return
      end(ledger, run, failed, error)
      leave(run)
    }
    if (flaw?.acksFirst) void context.ack()
    let result: void | Promise<void>
    try {
      result = next(context)
    } catch (error) {
      ended(true, error)
      throw error
    }
    if (result === undefined || typeof result.then !== 'function') return ended(false)
    return result.then(
      () => (this.connection.dead ? never : ended(false)),
      (error) => {
        ended(true, error)
        throw error
      },
    )
  }

  #check(message: Message, n: number): void {
    const { ledger } = this.#world
    const sent = ledger.sent[n]
    const payload = message.payload as Payload
    if (payload.n !== n || payload.text !== textOf(n) || message.headers.origin !== 'simulation') {
      ledger.fail('intact', `#${n} reached its handler as ${JSON.stringify(payload)}`)
    }
    if (message.id !== sent?.message?.id || message.key !== sent.plan.key) {
      ledger.fail('id', `#${n} reached its handler with another id or key`)
    }
  }

  // --- The three ways to consume ---

  readonly handle: Handler<Payload> = (_payload, context) => {
    if (this.connection.dead) return never
    const run = this.#runs.get(context)!
    const { n } = run.held
    this.#check(context.message, n)
    const step = this.#step(n)
    if (step.kind === 'ok' && step.ms === 0) return undefined
    run.handlers++
    return this.#perform(step, context, run).finally(() => run.handlers--)
  }

  async #perform(step: Step, context: ConsumeContext, run: Run): Promise<void> {
    if (step.ms > 0) await this.#wait(step.ms, step.heeds ? context.signal : undefined)
    if (this.connection.dead) return never
    const { ledger } = this.#world
    const { held } = run
    const open = !context.settled
    const last = context.attempt >= this.group().plan.attempts
    switch (step.kind) {
      case 'ok':
      case 'timeout':
        return
      case 'crash':
        this.connection.crash()
        return never
      case 'ack-then-throw':
      case 'settle-twice': {
        if (open) run.explicit = 'ack'
        const [, again] = await Promise.all([context.ack(), context.ack()])
        if (again) ledger.fail('settle-once', `a second ack of #${held.n} returned true`)
        if (await context.retry(1))
          ledger.fail('settle-once', `a retry after the ack of #${held.n}`)
        if (step.kind === 'settle-twice') return
        throw new Error('after the ack')
      }
      case 'ctx-retry':
        if (last) break
        if (open) [run.explicit, run.explicitDelay] = ['retry', later]
        await context.retry(later)
        return
      case 'ctx-dead-letter':
        if (open) run.explicit = 'dead-letter'
        await context.deadLetter(new Error('on purpose'))
        return
    }
    throw errorOf(step, held.n)
  }

  readonly handleBatch: BatchHandler<Payload> = async (_payloads, context) => {
    if (this.connection.dead) return never
    const steps = context.messages.map((message) => {
      const n = numberOf(message)
      this.#check(message, n)
      return this.#step(n)
    })
    const ms = Math.max(...steps.map((step) => step.ms))
    if (ms > 0) await this.#wait(ms)
    if (this.connection.dead) return never
    if (steps.some(({ kind }) => kind === 'crash')) {
      this.connection.crash()
      return never
    }
    steps.forEach((step, index) => {
      if (step.kind === 'ok' || step.kind === 'timeout' || step.kind === 'settle-twice') return
      context.fail(index, errorOf(step, numberOf(context.messages[index]!)))
    })
  }

  /** The body of a loop over `bus.consume`. */
  async take(delivery: Delivery<Payload>): Promise<void> {
    if (this.connection.dead) return
    const run = this.#runs.get(delivery)!
    const { held } = run
    this.#check(delivery.message, held.n)
    const step = this.#step(held.n)
    run.handlers++
    try {
      if (step.kind === 'ok' || step.kind === 'timeout') {
        if (step.ms > 0) await this.#wait(step.ms, step.heeds ? delivery.signal : undefined)
        if (this.connection.dead) return
        if (!delivery.settled) run.explicit = 'ack'
        await delivery.ack()
        return
      }
      await this.#perform(step, delivery, run)
    } catch (error) {
      if (delivery.settled || this.connection.dead) return
      run.explicit = 'fail'
      run.error = error
      run.endedInClosing = this.connection.closing
      held.fate.everFailed = true
      await delivery.fail(error)
    } finally {
      run.handlers--
    }
  }
}

export const textOf = (n: number) => `message ${n} ✓`

function errorOf(step: Step, n: number): unknown {
  switch (step.kind) {
    case 'permanent':
      return new PermanentError(`#${n} can never succeed`)
    case 'later':
      return new RetryLaterError(10 + ((n * 37) % 300))
    case 'later-uncounted':
      return new RetryLaterError(5 + ((n * 17) % 100), 'not yet', { counted: false })
    case 'non-error':
      return [undefined, 'text', 0, { code: n }][n % 4]
    default:
      return new Error(`#${n} fails this time`)
  }
}
