import { type Bus, connect, silentLogger } from '@longshore/core'
import { MemoryBroker } from '../../packages/core/src/memory/broker.js'
import { Chaos } from './chaos.js'
import { WatchedClock } from './clock.js'
import { Connection, type World } from './connection.js'
import { type Consuming, consume } from './consuming.js'
import type { Flaw } from './flaws.js'
import { type Payload, textOf, Workload } from './handlers.js'
import { Ledger } from './ledger.js'
import {
  type Action,
  type GroupPlan,
  type MessagePlan,
  makePlan,
  type Plan,
  patientMs,
} from './plan.js'
import { Random } from './random.js'
import { Trace } from './trace.js'

/** What closing may take beyond its timeout: leaving and saying goodbye, each perhaps slowly. */
const slackMs = 6000

/** One run: brokers, members, publishers and mishaps of a seed, in virtual time. */
export class Simulation implements World {
  readonly plan: Plan
  readonly clock: WatchedClock
  readonly broker: MemoryBroker
  readonly trace: Trace
  readonly ledger: Ledger
  readonly chaos: Chaos
  readonly random: Random
  readonly members: Consuming[] = []
  readonly all: Connection[] = []
  publishers: Bus[] = []
  admin!: Bus
  adminConnection!: Connection
  /** The faults are over, and every group must have a member. */
  ending = false
  /** Steps that were begun and have not ended. */
  open = 0
  #failedJoins = 0

  constructor(
    seed: number,
    traced: boolean,
    readonly flaw: Flaw | undefined,
    onLine?: (line: string) => void,
  ) {
    this.plan = makePlan(seed)
    const jitter = new Random(`${seed}:jitter`)
    this.clock = new WatchedClock({ random: jitter.next })
    const begin = this.clock.now()
    this.trace = new Trace(traced, () => this.clock.now() - begin, onLine)
    this.clock.onStandstill = () => this.trace.fail('livelock', 'timers without end in one instant')
    this.ledger = new Ledger(this.trace, () => this.clock.now())
    this.random = new Random(`${seed}:people`)
    this.chaos = new Chaos(new Random(`${seed}:chaos`), this.plan.faultRate, this.clock, this.trace)
    this.broker = new MemoryBroker(this.clock, {
      name: '',
      retain: 10_000,
      maxBacklog: 1_000_000,
      maxBytes: 1_000_000,
      dedupeWindow: 0,
      partitions: this.plan.partitions,
    })
  }

  // --- Set-up ---

  async begin(): Promise<void> {
    const { plan, broker, ledger, trace } = this
    if (trace.active) trace.add(`plan ${JSON.stringify({ ...plan, actions: plan.actions.length })}`)
    for (const topic of plan.topics) broker.tap(topic, (message) => ledger.accepted(message))
    for (const action of plan.actions) {
      if (action.do !== 'publish') continue
      for (const message of action.messages) this.#expect(message, false)
    }
    this.adminConnection = new Connection(this, 'admin', false)
    this.admin = await this.#connect(this.adminConnection)
    for (let i = 0; i < plan.publishers; i++) {
      this.publishers.push(await this.#connect(new Connection(this, `publisher${i}`, true)))
    }
    this.#faultyBroker()
    for (const action of plan.actions) this.clock.setTimer(() => this.#act(action), action.at)
  }

  #expect(plan: MessagePlan, foreign: boolean): void {
    this.ledger.sent[plan.n] = {
      plan,
      foreign,
      status: 'unborn',
      askedAt: 0,
      cancelled: false,
      copies: 0,
      message: undefined,
    }
  }

  #connect(connection: Connection): Promise<Bus> {
    this.all.push(connection)
    return connect({
      driver: connection.module,
      clock: this.clock,
      logger: silentLogger,
      connectTimeout: 600_000,
      publish: {
        deadline: this.plan.deadline,
        ...(this.plan.buffer === undefined ? {} : { buffer: this.plan.buffer }),
      },
    }).then((bus) => {
      connection.bus = bus
      return bus
    })
  }

  /** The broker's own faults, beside those of the calls. */
  #faultyBroker(): void {
    const { chaos, plan } = this
    if (plan.weather !== 'wild') return
    this.broker.faults = {
      publish: () =>
        chaos.strikes()
          ? chaos.random.pick(['lose', 'lose-confirm', 'reject'] as const)
          : undefined,
      settle: () => (chaos.strikes() ? 'fail' : undefined),
    }
  }

  // --- What people do ---

  #act(action: Action): void {
    if (this.trace.violation !== undefined) return
    const { broker, trace } = this
    if (trace.active && action.do !== 'publish')
      trace.add(
        `action ${JSON.stringify({ ...action, group: 'group' in action ? action.group.id : undefined })}`,
      )
    switch (action.do) {
      case 'publish':
        return this.#publish(action)
      case 'foreign':
        this.#expect(action.message, true)
        Object.assign(this.ledger.sent[action.message.n]!, { status: 'confirmed' })
        return broker.publish(action.message.topic, Buffer.from('{ no json'), {
          headers: { n: String(action.message.n) },
          ...(action.message.key === undefined ? {} : { key: action.message.key }),
        })
      case 'join':
        return this.join(action.group)
      case 'leave': {
        const member = this.#any(action.group)
        if (member) this.close(member, action.timeout)
        return
      }
      case 'crash':
        return this.#any(action.group)?.connection.crash()
      case 'pause':
        return this.#pause(this.#any(action.group), action.ms)
      case 'sever':
        return broker.sever()
      case 'restart':
        return broker.restart()
      case 'outage':
        broker.stop()
        this.open++
        this.clock.setTimer(() => {
          this.open--
          broker.start()
        }, action.ms)
        return
      case 'redrive': {
        const { topic, name } = action.group
        const filter = action.limit === undefined ? {} : { limit: action.limit }
        return this.track(this.admin.deadLetters(topic, name).redrive(filter))
      }
      case 'close-circuit': {
        const { topic, name } = action.group
        const { key, redrive } = action
        return this.track(this.admin.circuits(topic, name).close(key, { redrive }))
      }
      case 'cancel': {
        const sent = this.ledger.sent[action.message.n]!
        const { id } = sent as { id?: string }
        if (id === undefined) return
        return this.track(
          this.admin.cancelDelayed(sent.plan.topic, id).then((taken) => {
            if (taken) sent.cancelled = true
          }),
        )
      }
    }
  }

  /** Counts what was begun, so that the end can wait for it. */
  track(step: Promise<unknown>): void {
    this.open++
    step.then(
      () => this.open--,
      (error) => {
        this.open--
        this.trace.add(`failed: ${textOfError(error)}`)
      },
    )
  }

  #any(group: GroupPlan): Consuming | undefined {
    const living = this.living(group)
    return living.length === 0 ? undefined : this.random.pick(living)
  }

  living(group: GroupPlan): Consuming[] {
    return this.members.filter(
      ({ group: its, connection }) => its === group && !connection.dead && !connection.closing,
    )
  }

  #pause(member: Consuming | undefined, ms: number): void {
    if (member?.subscription === undefined || member.paused) return
    const { subscription } = member
    member.paused = true
    subscription.pause()
    this.clock.setTimer(() => {
      member.paused = false
      subscription.resume()
    }, ms)
  }

  #publish({ publisher, topic, batch, messages }: Extract<Action, { do: 'publish' }>): void {
    const bus = this.publishers[publisher]!
    const entry = ({ n, key, delay }: MessagePlan) => {
      const sent = this.ledger.sent[n]!
      const id = `${this.plan.seed}-${n}`
      Object.assign(sent, { status: 'open', askedAt: this.clock.now(), id })
      this.trace.add(`publish #${n} to ${topic}${delay > 0 ? ` in ${delay} ms` : ''}`)
      return {
        id,
        ...(key === undefined ? {} : { key }),
        ...(delay > 0 ? { delay } : {}),
        headers: { n: String(n), origin: 'simulation' },
      }
    }
    const payload = (n: number): Payload => ({ n, text: textOf(n) })
    const told = (n: number, status: 'confirmed' | 'failed' | 'unknown') => {
      this.ledger.sent[n]!.status = status
      this.trace.add(`publish of #${n}: ${status}`)
    }
    if (batch) {
      const entries = messages.map((message) => ({
        ...entry(message),
        payload: payload(message.n),
      }))
      this.track(
        bus.publishBatch<Payload>(topic, entries).then((outcomes) => {
          outcomes.forEach(({ status }, i) => void told(messages[i]!.n, status))
        }),
      )
      return
    }
    for (const message of messages) {
      const { n } = message
      this.track(
        bus.publish<Payload>(topic, payload(n), entry(message)).then(
          () => told(n, 'confirmed'),
          (error) => told(n, error.code === 'LONGSHORE_OUTCOME_UNKNOWN' ? 'unknown' : 'failed'),
        ),
      )
    }
  }

  // --- Coming and going ---

  join(group: GroupPlan): void {
    this.track(this.#join(group))
  }

  async #join(group: GroupPlan): Promise<void> {
    const connection = new Connection(this, `member${this.all.length}`, true)
    connection.group = group
    const bus = await this.#connect(connection)
    if (this.trace.active) this.trace.add(`join ${connection.name} to ${group.id}`)
    const workload = new Workload(connection, () => this.ledger.groups.get(group.id)!)
    const failed = (error: unknown) => {
      this.trace.add(`${connection.name} could not join: ${textOfError(error)}`)
      // Told to leave while it joined: it need not come again.
      if (connection.dead || connection.closing) return
      this.#end(connection, 0)
      if (!this.ending) return
      if (++this.#failedJoins > 30) this.trace.fail('join', textOfError(error))
      else this.join(group)
    }
    try {
      this.members.push(await consume(bus, group, workload, connection, failed))
      if (this.trace.active) this.trace.add(`joined ${connection.name}`)
    } catch (error) {
      failed(error)
    }
  }

  close({ connection }: Consuming, timeout: number): void {
    this.#end(connection, timeout)
  }

  #end(connection: Connection, timeout: number): void {
    connection.closing = true
    this.trace.add(`closing ${connection.name} within ${timeout} ms`)
    const { ledger, plan, clock } = this
    const begun = clock.now()
    this.track(
      connection.bus!.close({ timeout }).then(({ drained, abandoned }) => {
        this.trace.add(
          `closed ${connection.name}: ${drained ? 'drained' : `${abandoned} abandoned`}`,
        )
        if (clock.now() > begun + timeout + slackMs) {
          ledger.fail('close', `${connection.name} took ${clock.now() - begun} ms, not ${timeout}`)
        }
        if (drained || connection.dead) return
        if (timeout < patientMs) return
        if (plan.weather === 'calm' || this.ending) {
          ledger.fail(
            'drain',
            `${connection.name} abandoned ${abandoned} though it had ${timeout} ms`,
          )
        }
      }),
    )
  }

  crashed({ group }: Connection): void {
    if (group === undefined) return
    if (this.ending) return this.join(group)
    if (!this.random.chance(0.7)) return
    this.open++
    this.clock.setTimer(
      () => {
        this.open--
        this.join(group)
      },
      this.random.int(1, 800),
    )
  }
}

const textOfError = (error: unknown) => (error instanceof Error ? error.message : String(error))
