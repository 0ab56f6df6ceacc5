import { UnsupportedError } from '@longshore/core'
import type { Channel } from 'amqplib'
import { type Settings, wordOf } from './settings.js'
import { type GroupSpec, noDeliveryLimit, type Topology } from './topology.js'

/**
 * Delays without a plugin. A message's delay is written in binary into its routing key, and it hops through one queue for
 * each bit that is set, from the largest to the smallest: each queue has one TTL, so nothing waits behind anything longer,
 * and dead-letters to the next level's exchange, which reads the next bit. The hops are safe: quorum queues that
 * dead-letter at least once. After the last bit the next word names the destination.
 */
const levels = 32
/** The smallest step, in milliseconds: level 0. */
const stepMs = 16
/** Bits that are kept: a delay grows by at most 1/16 of itself, and hops at most five times. */
const significant = 5

/** 366 days. */
export const longestDelay = 366 * 24 * 3600 * 1000

const prefix = 'longshore..delay..'
const levelName = (level: number) => `${prefix}${stepMs * 2 ** level}ms`
const outName = `${prefix}out`
const lostName = `${prefix}lost`
const unwantedName = `${prefix}unwanted`

/** An exchange that says that there is a way to the destination: bindings can't be asked for. */
const signOf = (to: Destination) => `longshore..delay..to..${destinationWord(to)}`

const anyWords = '*.'.repeat(levels)

/** The delay in steps, rounded up to a few significant bits: never early, and at most 6.25 % (or one step) late. */
export function stepsOf(delayMs: number): number {
  const steps = Math.max(1, Math.ceil(delayMs / stepMs))
  const drop = Math.max(0, Math.floor(Math.log2(steps)) + 1 - significant)
  const unit = 2 ** drop
  return Math.ceil(steps / unit) * unit
}

export interface Destination {
  readonly kind: 'exchange' | 'queue'
  readonly name: string
}

/** Where a delayed message is published to. */
export interface DelayedRoute {
  readonly exchange: string
  readonly routingKey: string
}

const words = new Map<string, string>()

function destinationWord({ kind, name }: Destination): string {
  const key = `${kind} ${name}`
  let word = words.get(key)
  if (word === undefined) {
    word = wordOf(kind, name)
    words.set(key, word)
  }
  return word
}

/** What the keys of all messages for it begin with, whatever their delay. */
const pattern = (to: Destination): string => `${anyWords}${destinationWord(to)}`

export class Delays {
  readonly #ready = new Set<string>()
  #epoch = 0

  constructor(
    private readonly topology: Topology,
    private readonly settings: Pick<Settings, 'autoCreate' | 'exchangeType'>,
  ) {
    topology.delayedPrefix = (exchange) => `${pattern({ kind: 'exchange', name: exchange })}.`
    topology.openWays = (to) => this.#openWays(to)
  }

  /** The level that a delay begins at. */
  levelOf(delayMs: number): number {
    return Math.floor(Math.log2(stepsOf(delayMs)))
  }

  /** Whether `route` may be used at once; else `prepare` first. */
  isReady(to: Destination, delayMs: number): boolean {
    if (this.#epoch !== this.topology.epoch) {
      this.#epoch = this.topology.epoch
      this.#ready.clear()
    }
    return this.#ready.has(this.#key(to, this.levelOf(delayMs)))
  }

  #key({ kind, name }: Destination, level: number): string {
    return `${level} ${kind} ${name}`
  }

  route(to: Destination, delayMs: number, routingKey: string): DelayedRoute {
    const steps = stepsOf(delayMs)
    const level = Math.floor(Math.log2(steps))
    let key = ''
    for (let bit = levels - 1; bit >= 0; bit--)
      key += Math.floor(steps / 2 ** bit) % 2 ? '1.' : '0.'
    key += destinationWord(to)
    if (routingKey !== '') key += `.${routingKey}`
    if (Buffer.byteLength(key) > 255) {
      throw new UnsupportedError(
        `a delayed message's routing key has ${Buffer.byteLength(key)} bytes, AMQP takes 255; use a shorter route`,
        'delay',
        'rabbitmq',
      )
    }
    return { exchange: levelName(level), routingKey: key }
  }

  isOurs(exchange: string): boolean {
    return exchange.startsWith(prefix)
  }

  /** Something of it was deleted: all is declared again. Several messages may tell. */
  missing(): void {
    if (this.#epoch === this.topology.epoch) this.topology.forget()
  }

  /** Declares the levels up to the one that the delay needs, and the way to the destination. */
  async prepare(to: Destination, delayMs: number): Promise<void> {
    const level = this.levelOf(delayMs)
    const { epoch } = this.topology
    const { autoCreate } = this.settings
    await this.createLevels(level, autoCreate)
    if (autoCreate) await this.#openWays([to])
    else await this.#mustLead(to)
    if (epoch !== this.topology.epoch) return
    for (let each = 0; each <= level; each++) this.#ready.add(this.#key(to, each))
  }

  /** All that delays need, for programs that may not declare anything themselves. */
  async createAll(groups: readonly GroupSpec[]): Promise<void> {
    await this.createLevels(levels - 1, true)
    for (const group of groups) await this.topology.openWaysOf(group)
  }

  private async createLevels(upTo: number, create: boolean): Promise<void> {
    if (!create) {
      const name = levelName(upTo)
      return this.topology.once(
        `exchange ${name} is there`,
        `the delay exchange '${name}'`,
        (channel) => channel.checkExchange(name),
      )
    }
    await this.topology.once('delay out', `the exchange '${outName}'`, declareOut)
    for (let level = 0; level <= upTo; level++) {
      const doing = `the delay queue '${levelName(level)}'`
      await this.topology.once(`delay ${level}`, doing, (channel) => declareLevel(channel, level))
    }
  }

  /** Without a way to it, what is delayed for a destination would end among the lost. */
  #mustLead(to: Destination): Promise<void> {
    const sign = signOf(to)
    const doing = `delays for ${to.kind} '${to.name}', which bus.native().createDelays() prepares (the exchange '${sign}')`
    return this.topology.once(`exchange ${sign} is there`, doing, (channel) =>
      channel.checkExchange(sign),
    )
  }

  /** From the last level to the destinations. */
  async #openWays(all: readonly Destination[]): Promise<void> {
    await this.topology.once('delay out', `the exchange '${outName}'`, declareOut)
    for (const to of all) {
      const way = `delay to ${to.kind} ${to.name}`
      const doing = `delays for ${to.kind} '${to.name}'`
      const { exchangeType } = this.settings
      await this.topology.once(way, doing, (channel) => openWay(channel, to, exchangeType))
    }
  }
}

/** What has nowhere to go any more would be tried for ever and hold up all others: it goes to a queue for people to see. */
async function declareOut(channel: Channel): Promise<void> {
  await channel.assertExchange(lostName, 'fanout', { durable: true })
  await channel.assertQueue(lostName, {
    durable: true,
    arguments: { 'x-queue-type': 'quorum', 'x-delivery-limit': noDeliveryLimit },
  })
  await channel.bindQueue(lostName, lostName, '')
  await channel.assertExchange(outName, 'topic', { durable: true, alternateExchange: lostName })
  await channel.assertQueue(unwantedName, {
    durable: true,
    arguments: { 'x-queue-type': 'quorum', 'x-max-length': 0 },
  })
}

/**
 * A message that its topic hands to no group would be tried for ever, too: a queue that keeps nothing always takes it. It hangs
 * on the topic's exchange (which of fanout ones would see all messages), so that it goes with it.
 */
async function openWay(
  channel: Channel,
  to: Destination,
  exchangeType: Settings['exchangeType'],
): Promise<void> {
  const { kind, name } = to
  const delayed = `${pattern(to)}.#`
  if (kind === 'queue') {
    await channel.bindQueue(name, outName, delayed)
  } else {
    await channel.bindQueue(unwantedName, exchangeType === 'fanout' ? outName : name, delayed)
    await channel.bindExchange(name, outName, delayed)
  }
  await channel.assertExchange(signOf(to), 'fanout', { durable: true })
}

async function declareLevel(channel: Channel, level: number): Promise<void> {
  const name = levelName(level)
  const next = level === 0 ? outName : levelName(level - 1)
  await channel.assertExchange(name, 'topic', { durable: true })
  await channel.assertQueue(name, {
    durable: true,
    arguments: {
      'x-queue-type': 'quorum',
      'x-message-ttl': stepMs * 2 ** level,
      'x-dead-letter-exchange': next,
      'x-dead-letter-strategy': 'at-least-once',
      'x-overflow': 'reject-publish',
    },
  })
  const before = '*.'.repeat(levels - 1 - level)
  await channel.bindQueue(name, name, `${before}1.#`)
  await channel.bindExchange(next, name, `${before}0.#`)
}
