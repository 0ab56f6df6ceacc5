import { memory } from './raw/memory.js'
import { rabbitmq } from './raw/rabbitmq.js'
import { brokerScenarios, memoryScenarios } from './scenarios/index.js'
import type { Scenario } from './scenarios/scenario.js'
import type { RawClient } from './session.js'

/** A running server, as scripts/brokers tells of it. */
export interface Broker {
  readonly name: string
  readonly url: string
  readonly version: string
  readonly source: string
}

/** Starts the broker of this name if it is down. */
export type BringUp = (name: string) => Promise<Broker>

interface BenchDriver {
  /** Whether it needs the broker of its name; else its URL is `<name>://`. */
  readonly broker: boolean
  readonly raw: (url: string) => RawClient
  readonly scenarios: readonly Scenario[]
  /** In each measurement of throughput, so that it takes some seconds. */
  readonly messages: number
}

const onRabbitmq: BenchDriver = {
  broker: true,
  raw: rabbitmq,
  scenarios: brokerScenarios,
  messages: 60_000,
}

export const drivers: ReadonlyMap<string, BenchDriver> = new Map([
  ['memory', { broker: false, raw: () => memory, scenarios: memoryScenarios, messages: 1_000_000 }],
  ['rabbitmq', onRabbitmq],
  ['rabbitmq@next', onRabbitmq],
])
