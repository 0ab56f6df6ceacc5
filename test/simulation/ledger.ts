import type { IncomingDelivery, RetryRequest, WireMessage } from '@longshore/core/driver'
import type { Connection } from './connection.js'
import type { GroupPlan, MessagePlan } from './plan.js'
import type { Trace } from './trace.js'

/** One copy of a message that waits at the broker, and as what it must come. */
interface Waiting {
  readonly attempt: number
  readonly deliveries: number
  readonly notBefore: number
  readonly firstFailedAt: number | undefined
}

/** What became of a message in a group. */
export interface Fate {
  readonly waiting: Waiting[]
  /** Its place in the order in which the group got its messages. */
  order: number
  held: number
  acks: number
  dead: number
  /** The redrive that sent it back, until it runs. */
  redriven: number | undefined
  everDead: boolean
  everFailed: boolean
  /** How often a delivery was taken away: that many repeats are allowed. */
  taken: number
  successes: number
  executions: number
}

export interface GroupRecord {
  readonly plan: GroupPlan
  readonly fates: Fate[]
  readonly lastOfKey: Map<string, number>
  readonly lastRedriven: Map<string, { readonly batch: number; readonly order: number }>
  readonly circuits: Map<string, number>
  /** Runs by key that are not over, for groups that keep the order. */
  readonly active: Map<string, Set<Run>>
}

export interface Member {
  readonly connection: Connection
  readonly group: GroupRecord
  readonly window: number
  held: number
  running: number
}

export interface Held {
  readonly member: Member
  readonly n: number
  readonly key: string | undefined
  readonly delivery: IncomingDelivery
  readonly fate: Fate
  state: 'held' | 'acked' | 'retried' | 'dead' | 'released' | 'revoked' | 'crashed'
  run: Run | undefined
  calls: number
  underway: boolean
  answered: boolean
}

export interface Run {
  readonly held: Held
  readonly context: unknown
  readonly attempt: number
  repeats: number
  outcome: 'running' | 'ok' | 'failed' | 'handed-back'
  error: unknown
  handlers: number
  endedAt: number
  endedInClosing: boolean
  explicit: 'ack' | 'retry' | 'dead-letter' | 'fail' | undefined
  explicitDelay: number | undefined
}

/** What is known of a message from its publisher. */
export interface Sent {
  readonly plan: MessagePlan
  readonly foreign: boolean
  status: 'unborn' | 'open' | 'confirmed' | 'failed' | 'unknown'
  askedAt: number
  cancelled: boolean
  copies: number
  message: WireMessage | undefined
}

export const numberOf = (message: { headers: Readonly<Record<string, string>> }): number =>
  Number(message.headers.n)

/** The books: what must be where, held against what driver and runtime do. Rules that need history are checked in `rules.ts`. */
export class Ledger {
  readonly sent: Sent[] = []
  readonly groups = new Map<string, GroupRecord>()
  readonly held = new Map<IncomingDelivery, Held>()
  readonly counts = {
    delivered: 0,
    handled: 0,
    retried: 0,
    dead: 0,
    redriven: 0,
    revoked: 0,
    faults: 0,
  }
  redrives = 0
  #order = 0
  /** All that topics took, in order. */
  readonly #log: MessagePlan[] = []
  #burstAt = -1
  #burst = 0

  constructor(
    readonly trace: Trace,
    readonly now: () => number,
  ) {}

  fail(rule: string, detail: string): void {
    this.trace.fail(rule, detail)
  }

  // --- Broker ---

  created(plan: GroupPlan): GroupRecord {
    let group = this.groups.get(plan.id)
    if (group !== undefined) return group
    group = {
      plan,
      fates: [],
      lastOfKey: new Map(),
      lastRedriven: new Map(),
      circuits: new Map(),
      active: new Map(),
    }
    this.groups.set(plan.id, group)
    if (plan.from === 'earliest') {
      const past = this.#log.filter(({ topic }) => topic === plan.topic)
      for (const { n } of past) this.fate(group, n).waiting.push(fresh)
    }
    return group
  }

  fate(group: GroupRecord, n: number): Fate {
    let fate = group.fates[n]
    if (fate === undefined) {
      fate = {
        waiting: [],
        order: this.#order++,
        held: 0,
        acks: 0,
        dead: 0,
        redriven: undefined,
        everDead: false,
        everFailed: false,
        taken: 0,
        successes: 0,
        executions: 0,
      }
      group.fates[n] = fate
    }
    return fate
  }

  /** The broker accepted a message (again). */
  accepted(message: WireMessage): void {
    const n = numberOf(message)
    const sent = this.sent[n]
    this.trace.add(() => `accepted ${message.topic} #${n} ${message.key ?? '-'}`)
    if (sent === undefined) return this.fail('invented', `nobody published #${n}`)
    if (sent.message === undefined) {
      sent.message = message
      if (this.now() < sent.askedAt + sent.plan.delay) {
        this.fail('early', `#${n} reached its topic before its delay of ${sent.plan.delay} ms`)
      }
    } else if (sent.message.id !== message.id) {
      this.fail('id', `#${n} was published as ${sent.message.id}, then as ${message.id}`)
    }
    sent.copies++
    this.#log.push(sent.plan)
    for (const group of this.groups.values()) {
      if (group.plan.topic === message.topic) this.fate(group, n).waiting.push(fresh)
    }
  }

  // --- Deliveries ---

  delivered(member: Member, delivery: IncomingDelivery): void {
    const { message, attempt, deliveries } = delivery
    const { group, connection } = member
    const n = numberOf(message)
    const what = () =>
      `#${n} to ${group.plan.id} at ${connection.name}, attempt ${attempt}.${deliveries}`
    this.trace.add(() => `delivered ${what()}`)
    this.counts.delivered++
    if (this.now() !== this.#burstAt) [this.#burstAt, this.#burst] = [this.now(), 0]
    if (++this.#burst > 20_000)
      return this.fail('livelock', `20,000 deliveries in one instant; last: ${what()}`)
    const sent = this.sent[n]
    if (sent?.message === undefined) return this.fail('invented', what())
    if (!same(sent.message, message)) this.fail('intact', `${what()} is not as it was published`)
    const fate = this.fate(group, n)
    this.#expect(fate, delivery, what)
    fate.held++
    if (++member.held > member.window)
      this.fail('window', `${what()}: ${member.held} are unsettled`)
    if (this.held.has(delivery)) this.fail('double-delivery', `${what()}: the same object again`)
    this.held.set(delivery, {
      member,
      n,
      key: message.key,
      delivery,
      fate,
      state: 'held',
      run: undefined,
      calls: 0,
      underway: false,
      answered: false,
    })
  }

  #expect(fate: Fate, delivery: IncomingDelivery, what: () => string): void {
    const { attempt, deliveries, firstFailedAt } = delivery
    const { waiting } = fate
    if (waiting.length === 0) return this.fail('double-delivery', `${what()}: no copy of it waits`)
    const counted = waiting.filter((w) => w.attempt === attempt && w.deliveries === deliveries)
    if (counted.length === 0) {
      const wanted = waiting.map((w) => `${w.attempt}.${w.deliveries}`).join(' or ')
      return this.fail('attempt', `${what()}: expected ${wanted}`)
    }
    const due = counted.find((w) => w.notBefore <= this.now())
    if (due === undefined) return this.fail('early', `${what()}: its delay is not over`)
    const exact = counted.find(
      (w) => w.notBefore <= this.now() && w.firstFailedAt === firstFailedAt,
    )
    if (exact === undefined)
      this.fail('failure-record', `${what()}: firstFailedAt ${firstFailedAt}`)
    waiting.splice(waiting.indexOf(exact ?? due), 1)
  }

  /** No longer in a member's hands. */
  #gone(held: Held, state: Held['state']): void {
    if (held.state !== 'held') {
      return this.fail('settle-once', `#${held.n} is ${held.state}, and now ${state} too`)
    }
    held.state = state
    held.fate.held--
    held.member.held--
  }

  acked(held: Held): void {
    this.#gone(held, 'acked')
    held.fate.acks++
    this.counts.handled++
  }

  retried(held: Held, request: RetryRequest): void {
    this.#gone(held, 'retried')
    held.fate.everFailed = true
    this.counts.retried++
    const { attempt, firstFailedAt, delayMs } = request
    held.fate.waiting.push({
      attempt,
      deliveries: 1,
      notBefore: this.now() + delayMs,
      firstFailedAt,
    })
  }

  buried(held: Held): void {
    this.#gone(held, 'dead')
    this.counts.dead++
    held.fate.dead++
    held.fate.redriven = undefined
    held.fate.everDead = true
  }

  released(held: Held): void {
    if (held.state !== 'held') return
    this.#gone(held, 'released')
    const { attempt, deliveries, firstFailedAt } = held.delivery
    held.fate.waiting.push({ attempt, deliveries, notBefore: 0, firstFailedAt })
  }

  /** Taken away from its member; `counted`: it may be the message's fault. */
  taken(held: Held, how: 'revoked' | 'crashed', counted: boolean): void {
    if (held.state !== 'held') return
    this.#gone(held, how)
    this.counts.revoked++
    held.fate.taken++
    const { attempt, deliveries, firstFailedAt } = held.delivery
    const next = deliveries + (counted ? 1 : 0)
    held.fate.waiting.push({ attempt, deliveries: next, notBefore: 0, firstFailedAt })
  }

  crashed(connection: Connection): void {
    for (const held of this.held.values()) {
      if (held.member.connection === connection) this.taken(held, 'crashed', true)
    }
  }

  redriven(group: GroupRecord, n: number, batch: number): void {
    const fate = this.fate(group, n)
    fate.dead--
    // Of several copies nobody can tell which is which.
    if (this.sent[n]?.copies === 1) fate.redriven = batch
    this.counts.redriven++
    fate.waiting.push(fresh)
  }

  // --- Circuits ---

  circuit(group: GroupRecord, key: string, open: boolean): void {
    this.trace.add(() => `circuit ${group.plan.id} ${key} ${open ? 'open' : 'closed'}`)
    if (open) group.circuits.set(key, this.now())
    else group.circuits.delete(key)
  }

  circuitState(group: GroupRecord, key: string | undefined): 'closed' | 'open' | 'half-open' {
    const openedAt = key === undefined ? undefined : group.circuits.get(key)
    if (openedAt === undefined) return 'closed'
    const { coolDown } = group.plan
    return coolDown !== undefined && this.now() - openedAt >= coolDown ? 'half-open' : 'open'
  }
}

const fresh: Waiting = { attempt: 1, deliveries: 1, notBefore: 0, firstFailedAt: undefined }

function same(a: WireMessage, b: WireMessage): boolean {
  if (a === b) return true
  return (
    a.id === b.id &&
    a.topic === b.topic &&
    a.key === b.key &&
    a.timestamp === b.timestamp &&
    JSON.stringify(a.headers) === JSON.stringify(b.headers) &&
    Buffer.compare(a.body, b.body) === 0
  )
}
