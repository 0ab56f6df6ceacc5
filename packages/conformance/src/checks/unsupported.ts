import type { Bus, Capabilities } from '@longshore/core'
import { type Check, check } from '../check.js'
import { rejects, same } from '../expect.js'

interface Ability {
  readonly name: string
  /** What `UnsupportedError.capability` says. */
  readonly capability: keyof Capabilities
  readonly title: string
  readonly declared: (capabilities: Capabilities) => boolean
  ask(bus: Bus, topic: string, group: string): unknown
}

const nothing = () => {}

const abilities: readonly Ability[] = [
  {
    name: 'delay',
    capability: 'delay',
    title: 'publishing with a delay',
    declared: (c) => c.delay > 0,
    ask: (bus, topic) => bus.publish(topic, 'x', { delay: 1000 }),
  },
  {
    name: 'at',
    capability: 'delay',
    title: 'publishing for a time',
    declared: (c) => c.delay > 0,
    ask: (bus, topic) => bus.publish(topic, 'x', { at: new Date(Date.now() + 60_000) }),
  },
  {
    name: 'priority',
    capability: 'priority',
    title: 'publishing with a priority',
    declared: (c) => c.priority > 0,
    ask: (bus, topic) => bus.publish(topic, 'x', { priority: 0 }),
  },
  {
    name: 'ttl',
    capability: 'ttl',
    title: 'publishing with a ttl',
    declared: (c) => c.ttl,
    ask: (bus, topic) => bus.publish(topic, 'x', { ttl: 1000 }),
  },
  {
    name: 'routing',
    capability: 'routing',
    title: 'publishing with a route',
    declared: (c) => c.routing !== 'none',
    ask: (bus, topic) => bus.publish(topic, 'x', { route: 'a.b' }),
  },
  {
    name: 'routes',
    capability: 'routing',
    title: 'subscribing to a route',
    declared: (c) => c.routing !== 'none',
    ask: (bus, topic, group) => bus.subscribe(topic, { group, routes: ['a.b'] }, nothing),
  },
  {
    name: 'routes-wildcards',
    capability: 'routing',
    title: 'subscribing to routes with wildcards',
    declared: (c) => c.routing === 'wildcard',
    ask: (bus, topic, group) => bus.subscribe(topic, { group, routes: ['a.*'] }, nothing),
  },
  {
    name: 'order',
    capability: 'order',
    title: "subscribing with order: 'key'",
    declared: (c) => c.order !== 'none',
    ask: (bus, topic, group) => bus.subscribe(topic, { group, order: 'key' }, nothing),
  },
  {
    name: 'replay',
    capability: 'replay',
    title: "subscribing from 'earliest'",
    declared: (c) => c.replay,
    ask: (bus, topic, group) => bus.subscribe(topic, { group, from: 'earliest' }, nothing),
  },
  {
    name: 'replay-date',
    capability: 'replay',
    title: 'subscribing from a date',
    declared: (c) => c.replay,
    ask: (bus, topic, group) => bus.subscribe(topic, { group, from: new Date(0) }, nothing),
  },
  {
    name: 'cancel-delay',
    capability: 'cancelDelay',
    title: 'taking a delayed message back',
    declared: (c) => c.cancelDelay,
    ask: (bus, topic) => bus.cancelDelayed(topic, 'some-id'),
  },
  {
    name: 'dead-letters-list',
    capability: 'deadLetters',
    title: 'listing dead letters',
    declared: (c) => c.deadLetters,
    ask: (bus, topic, group) => bus.deadLetters(topic, group).list()[Symbol.asyncIterator]().next(),
  },
  {
    name: 'dead-letters-redrive',
    capability: 'deadLetters',
    title: 'redriving dead letters',
    declared: (c) => c.deadLetters,
    ask: (bus, topic, group) => bus.deadLetters(topic, group).redrive(),
  },
  {
    name: 'park',
    capability: 'circuits',
    title: "'park' without a circuit store",
    declared: (c) => c.circuits || c.order === 'none',
    ask: (bus, topic, group) =>
      bus.subscribe(topic, { group, order: 'key', onKeyFailure: 'park' }, nothing),
  },
  {
    name: 'circuits',
    capability: 'circuits',
    title: 'listing circuits',
    declared: (c) => c.circuits,
    ask: (bus, topic, group) => bus.circuits(topic, group).list(),
  },
  {
    name: 'admin',
    capability: 'admin',
    title: 'creating a topic',
    declared: (c) => c.admin,
    ask: (bus, topic) => bus.admin.createTopic(topic),
  },
]

/** What a driver does not declare it must refuse, never ignore. */
export const unsupported: readonly Check[] = abilities.map((ability) =>
  check({
    id: `unsupported.${ability.name}`,
    title: `Undeclared: ${ability.title} is an UnsupportedError`,
    area: 'unsupported',
    ref: 0,
    applies: (capabilities) => !ability.declared(capabilities),
    async run(ctx) {
      const bus = await ctx.connect()
      const error = await rejects(
        () => ability.ask(bus, ctx.topic(), ctx.group()),
        'LONGSHORE_UNSUPPORTED',
        ability.title,
      )
      same(error.capability, ability.capability, 'the capability that the error names')
      same(error.driver, bus.driver, 'the driver that the error names')
    },
  }),
)
