import type { Bus, Capabilities, CircuitStore, MemoryOptions } from '@longshore/core'
import type {
  DeadLetterAccess,
  Driver,
  DriverConfig,
  DriverModule,
  DriverSubscription,
  OutgoingMessage,
  PublishSettle,
  Sink,
  SubscriptionSpec,
} from '@longshore/core/driver'
import type { VirtualClock } from '@longshore/core/testing'
import type { MemoryBroker } from '../../packages/core/src/memory/broker.js'
import { MemoryDriver } from '../../packages/core/src/memory/driver.js'
import type { Chaos, Victim } from './chaos.js'
import type { Flaw } from './flaws.js'
import { type Ledger, type Member, numberOf } from './ledger.js'
import type { GroupPlan, Plan } from './plan.js'
import { ObservedSubscription } from './subscription.js'

export interface World {
  readonly plan: Plan
  readonly clock: VirtualClock
  readonly broker: MemoryBroker
  readonly ledger: Ledger
  readonly chaos: Chaos
  readonly flaw: Flaw | undefined
  crashed(connection: Connection): void
}

const plainly: NonNullable<Flaw['subscribe']> = (driver, spec, sink) => driver.subscribe(spec, sink)

/** One process's connection: a memory driver that chaos may strike, and whose doings the ledger sees. */
export class Connection implements Victim, Driver {
  readonly name: string
  bus: Bus | undefined
  /** The group that its process is a member of. */
  group: GroupPlan | undefined
  dead = false
  /** Since `close` was called. */
  closing = false
  readonly members: Member[] = []
  #inner!: MemoryDriver

  constructor(
    readonly world: World,
    readonly role: string,
    /** Whether chaos may strike its calls. */
    private readonly exposed: boolean,
  ) {
    this.name = role
  }

  readonly module: DriverModule<MemoryOptions> = {
    name: 'memory',
    schemes: [],
    options: [],
    connect: (config) => this.#connect(config),
  }

  async #connect(config: DriverConfig<MemoryOptions>): Promise<Driver> {
    const { broker } = this.world
    if (!broker.running) {
      await new Promise<void>((resolve) => {
        const stop = broker.onStart(() => {
          stop()
          resolve()
        })
      })
    }
    this.#inner = new MemoryDriver(broker, config)
    return this
  }

  get capabilities(): Capabilities {
    return this.#inner.capabilities
  }

  get server(): string {
    return this.#inner.server
  }

  native(): unknown {
    return this.#inner
  }

  around<T>(point: Parameters<Chaos['around']>[0], effect: () => T | Promise<T>): T | Promise<T> {
    if (!this.exposed || this.dead) return effect()
    return this.world.chaos.around(point, this, effect)
  }

  strikes(): boolean {
    return this.exposed && !this.dead && this.world.chaos.strikes()
  }

  // --- Mishaps ---

  cut(): void {
    if (!this.dead) this.#inner.lose('chaos cut the connection')
  }

  crash(): void {
    if (this.dead) return
    this.dead = true
    const { ledger, flaw } = this.world
    ledger.trace.add(`crash of ${this.name}`)
    flaw?.crashing?.(this.#inner)
    ledger.crashed(this)
    this.#inner.crash()
    this.world.crashed(this)
  }

  // --- The driver ---

  publish(batch: readonly OutgoingMessage[], settle: PublishSettle): void {
    for (let i = 0; i < batch.length; i++) this.#publishOne(batch[i]!, i, settle)
  }

  #publishOne(outgoing: OutgoingMessage, index: number, settle: PublishSettle): void {
    const { chaos, flaw, ledger } = this.world
    const send = (done: PublishSettle) => {
      if (flaw?.publish?.(outgoing, this.#inner, (failure) => done(index, failure))) return
      this.#inner.publish([outgoing], (_, failure) => done(index, failure))
    }
    if (!this.strikes()) return send(settle)
    const what = chaos.random.pick([
      'slow confirm',
      'unsent',
      'unknown, not stored',
      'unknown, stored',
      'rejected',
      'no answer, not stored',
      'no answer, stored',
      'throw',
      'cut',
    ] as const)
    ledger.trace.add(`chaos ${what} at publish of #${numberOf(outgoing.message)} by ${this.name}`)
    const error = new Error(`chaos at publish: ${what}`)
    const later = (...args: Parameters<PublishSettle>) =>
      void chaos.pause().then(() => settle(...args))
    switch (what) {
      case 'slow confirm':
        return send(later)
      case 'unsent':
        return settle(index, { outcome: 'unsent', error })
      case 'unknown, not stored':
        return later(index, { outcome: 'unknown', error })
      case 'unknown, stored':
        return send(() => later(index, { outcome: 'unknown', error }))
      case 'rejected':
        return settle(index, { outcome: 'rejected', error })
      case 'no answer, not stored':
        return
      case 'no answer, stored':
        return send(() => {})
      case 'throw':
        throw error
      case 'cut':
        this.cut()
        return send(settle)
    }
  }

  async subscribe(spec: SubscriptionSpec, sink: Sink): Promise<DriverSubscription> {
    let joined: DriverSubscription | undefined
    const join = async () => {
      if (this.dead) throw new Error('crashed')
      const { ledger, plan, flaw, broker } = this.world
      const { topic, group: name, window } = spec
      const group = plan.groups.find((each) => each.topic === topic && each.name === name)!
      const observed = new ObservedSubscription(this, sink)
      const joining = (flaw?.subscribe ?? plainly)(this.#inner, spec, observed.sink)
      // The group is there now, if it was let in; deliveries come later.
      if (broker.topics.get(topic)?.group(name) !== undefined) {
        observed.member = {
          connection: this,
          group: ledger.created(group),
          window,
          held: 0,
          running: 0,
        }
        this.members.push(observed.member)
      }
      const inner = await joining
      observed.inner = inner
      joined = inner
      return observed
    }
    try {
      return await this.around('subscribe', join)
    } catch (error) {
      await joined?.close()
      throw error
    }
  }

  async close(): Promise<void> {
    try {
      await this.around('close', () => this.#inner.close())
    } finally {
      // Whatever went wrong: the process ends, and its sockets with it.
      await this.#inner.close()
    }
  }

  // --- Abilities ---

  get admin() {
    return this.#inner.admin
  }

  cancelDelayed(topic: string, id: string): Promise<boolean> {
    return this.#inner.cancelDelayed(topic, id)
  }

  get circuits(): CircuitStore {
    const { ledger, broker } = this.world
    const changed = (topic: string, group: string, key: string, open: boolean) => {
      const record = ledger.groups.get(`${topic}/${group}`)
      if (record !== undefined) ledger.circuit(record, key, open)
    }
    const { circuits } = broker
    return {
      list: (topic, group) => circuits.list(topic, group),
      watch: (topic, group, onChange) => circuits.watch(topic, group, onChange),
      open: async (topic, group, key, reason) =>
        this.around('circuit', () => {
          changed(topic, group, key, true)
          if (this.world.flaw?.forgetsCircuits) return
          return circuits.open(topic, group, key, reason)
        }),
      close: async (topic, group, key) =>
        this.around('circuit', () => {
          changed(topic, group, key, false)
          return circuits.close(topic, group, key)
        }),
    }
  }

  get deadLetters(): DeadLetterAccess {
    const { deadLetters: access } = this.#inner
    return {
      browse: (topic, group) => access.browse(topic, group),
      discard: (topic, group, selection) => access.discard(topic, group, selection),
      redrive: (topic, group, selection) => {
        const { broker, ledger, flaw } = this.world
        const letters = () => broker.topics.get(topic)?.group(group)?.deadLetters ?? []
        const before = [...letters()]
        const target = broker.topics.get(topic)?.group(group)
        if (target !== undefined) flaw?.redriving?.(target)
        const redriving = access.redrive(topic, group, selection)
        const after = new Set(letters())
        const batch = ledger.redrives++
        for (const letter of before) {
          if (after.has(letter)) continue
          const n = numberOf(letter.message)
          ledger.trace.add(`redriven #${n} in ${topic}/${group}, was '${letter.failure.reason}'`)
          ledger.redriven(ledger.groups.get(`${topic}/${group}`)!, n, batch)
        }
        return redriving
      },
    }
  }
}
