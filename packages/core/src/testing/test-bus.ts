import type { Bus, CloseReport } from '../api.js'
import { connect } from '../connect.js'
import type { BusOptions } from '../connect-types.js'
import { whole } from '../consumer/failure.js'
import { type Duration, toMs } from '../duration.js'
import { LongshoreError } from '../errors.js'
import type { BusEvents } from '../events.js'
import { type Logger, silentLogger } from '../logger.js'
import type { MemoryConnection } from '../memory/driver.js'
import type { MemoryOptions } from '../memory/options.js'
import { checkOptions } from '../options.js'
import type { TopicRef } from '../topic.js'
import { settle, VirtualClock } from './virtual-clock.js'

type DeliveryEvent = 'handled' | 'retried' | 'failed' | 'dead-lettered'

/** Which messages to wait for; all conditions must hold. */
export interface Expectation<Name extends DeliveryEvent> {
  readonly topic?: TopicRef
  readonly group?: string
  readonly id?: string
  readonly key?: string
  readonly where?: (event: BusEvents[Name]) => boolean
  /** How many, those included that came before the call. Default 1. */
  readonly count?: number
  /** How much (virtual) time may pass. Default 24 h. */
  readonly within?: Duration
}

/** What was waited for did not happen in time. */
export class ExpectationError extends LongshoreError {
  readonly code = 'LONGSHORE_EXPECTATION'
}

/** A bus on a private in-memory broker, whose time stands still until a test advances it or waits for something. */
export interface TestBus extends Bus {
  readonly clock: VirtualClock
  /** Lets time pass: retries, delays, leases and timeouts come due. */
  advance(time: Duration): Promise<void>
  /** Each resolves to the events so far that match, once there are `count`; time passes as far as it must. */
  handled(expected?: Expectation<'handled'>): Promise<readonly BusEvents['handled'][]>
  retried(expected?: Expectation<'retried'>): Promise<readonly BusEvents['retried'][]>
  failed(expected?: Expectation<'failed'>): Promise<readonly BusEvents['failed'][]>
  deadLettered(
    expected?: Expectation<'dead-lettered'>,
  ): Promise<readonly BusEvents['dead-lettered'][]>
  /** The broker and its faults. */
  native(): MemoryConnection
}

export type TestBusOptions = Omit<BusOptions, 'clock'> & {
  readonly memory?: MemoryOptions
  readonly clock?: VirtualClock
  /** Default: silent. */
  readonly logger?: Logger
}

const waitable = ['handled', 'retried', 'failed', 'dead-lettered'] as const

const expectations = ['topic', 'group', 'id', 'key', 'where', 'count', 'within'] as const

/** Real milliseconds for work that isn't on the virtual clock, such as I/O in a handler. */
const realGraceMs = 2000

/** Makes a bus for tests. Close it (or `await using`) as any other. */
export async function createTestBus(options: TestBusOptions = {}): Promise<TestBus> {
  const { memory = {}, clock = new VirtualClock(), logger = silentLogger, ...rest } = options
  const bus = await connect({ driver: 'memory', options: memory, ...rest, clock, logger })
  const seen: { readonly [Name in DeliveryEvent]: BusEvents[Name][] } = {
    handled: [],
    retried: [],
    failed: [],
    'dead-lettered': [],
  }
  for (const name of waitable) bus.on(name, (event) => void (seen[name] as unknown[]).push(event))

  async function wait<Name extends DeliveryEvent>(
    name: Name,
    expected: Expectation<Name> = {},
  ): Promise<readonly BusEvents[Name][]> {
    checkOptions('waiting', expected, expectations)
    const { topic, group, id, key, where, count = 1 } = expected
    whole('count', count, 0)
    const withinMs = toMs(expected.within ?? '24h', 'within')
    const topicName = typeof topic === 'object' ? topic.name : topic
    const matches = () =>
      (seen[name] as BusEvents[Name][]).filter(
        (event) =>
          (topicName === undefined || event.topic === topicName) &&
          (group === undefined || event.group === group) &&
          (id === undefined || event.message.id === id) &&
          (key === undefined || event.message.key === key) &&
          (where === undefined || where(event)),
      )
    const enough = () => matches().length >= count
    const deadline = clock.now() + withinMs
    const realDeadline = performance.now() + realGraceMs
    for (;;) {
      if (await clock.until(enough, deadline - clock.now())) return matches()
      // Nothing is left to do in virtual time; a handler may be at real I/O.
      const busy = bus.health().subscriptions.some((subscription) => subscription.running > 0)
      if (!busy || performance.now() > realDeadline) break
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    throw new ExpectationError(
      `expected ${count} '${name}' ${JSON.stringify({ topic: topicName, group, id, key })}, saw ${matches().length}; ` +
        `in all: ${waitable.map((each) => `${seen[each].length} ${each}`).join(', ')}`,
    )
  }

  /** Closing waits for handlers, and they may wait for the clock. */
  async function close(...args: Parameters<Bus['close']>): Promise<CloseReport> {
    let report: CloseReport | undefined
    const closing = bus.close(...args).then((done) => {
      report = done
    })
    closing.catch(() => {})
    for (await settle(); report === undefined; await settle()) {
      if (!(await Promise.race([closing.then(() => true), settle().then(() => false)]))) {
        const { next } = clock
        if (next !== undefined) await clock.advance(next)
      }
    }
    return report
  }

  const extra = {
    clock,
    advance: async (time: Duration) => clock.advance(toMs(time, 'advance')),
    handled: (expected?: Expectation<'handled'>) => wait('handled', expected),
    retried: (expected?: Expectation<'retried'>) => wait('retried', expected),
    failed: (expected?: Expectation<'failed'>) => wait('failed', expected),
    deadLettered: (expected?: Expectation<'dead-lettered'>) => wait('dead-lettered', expected),
    close,
    [Symbol.asyncDispose]: async () => void (await close()),
  }
  return new Proxy(bus, {
    get(target, property) {
      if (property in extra) return extra[property as keyof typeof extra]
      const value = Reflect.get(target, property, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  }) as TestBus
}
