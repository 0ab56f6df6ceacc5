import { describe, expect, it } from 'vitest'
import type { GroupOptions } from './admin.js'
import type { Bus, ConsumeOptions } from './api.js'
import type { Capabilities } from './capabilities.js'
import { connect } from './connect.js'
import type { Driver, DriverModule } from './driver.js'
import { UnsupportedError } from './errors.js'
import { memory } from './memory/index.js'
import { VirtualClock } from './testing/index.js'

/** The memory driver, without some of its abilities. */
function lesser(less: Partial<Capabilities>): DriverModule {
  return {
    ...memory,
    name: 'lesser',
    async connect(config) {
      const driver = await memory.connect(config)
      const capabilities = { ...driver.capabilities, ...less }
      return new Proxy(driver, {
        get(target, property) {
          if (property === 'name') return 'lesser'
          if (property === 'server') return 'lesser 1.0'
          if (property === 'capabilities') return capabilities
          const gone = property === 'cancelDelayed' ? 'cancelDelay' : property
          if (less[gone as keyof Capabilities] === false) return undefined
          const value = Reflect.get(target, property, target)
          return typeof value === 'function' ? value.bind(target) : value
        },
      }) as Driver
    },
  }
}

const open = (less: Partial<Capabilities>): Promise<Bus> =>
  connect({ driver: lesser(less), clock: new VirtualClock() })

/** What is thrown or rejected with. */
async function refusal(call: () => unknown): Promise<unknown> {
  try {
    await call()
  } catch (error) {
    return error
  }
  return 'nothing'
}

const subscribe = (options: Partial<ConsumeOptions>) => (bus: Bus) =>
  bus.subscribe('orders', { group: 'billing', ...options }, () => {})

const createGroup = (options: Partial<GroupOptions>) => (bus: Bus) =>
  bus.admin.createGroup('orders', 'billing', { order: 'none', from: 'latest', ...options })

describe('invariant 9: an option that the driver cannot honour is an UnsupportedError when declared', () => {
  const cases: {
    capability: keyof Capabilities
    less: Partial<Capabilities>
    what: string
    call(bus: Bus): unknown
  }[] = [
    {
      capability: 'delay',
      less: { delay: 0 },
      what: 'publish with delay',
      call: (bus) => bus.publish('orders', 1, { delay: '1s' }),
    },
    {
      capability: 'delay',
      less: { delay: 0 },
      what: 'publish with a delay of 0',
      call: (bus) => bus.publish('orders', 1, { delay: 0 }),
    },
    {
      capability: 'delay',
      less: { delay: 0 },
      what: 'publish with at, even in the past',
      call: (bus) => bus.publish('orders', 1, { at: new Date(0) }),
    },
    {
      capability: 'delay',
      less: { delay: 60_000 },
      what: 'a delay longer than the longest',
      call: (bus) => bus.publish('orders', 1, { delay: '61s' }),
    },
    {
      capability: 'priority',
      less: { priority: 0 },
      what: 'publish with priority',
      call: (bus) => bus.publish('orders', 1, { priority: 0 }),
    },
    {
      capability: 'ttl',
      less: { ttl: false },
      what: 'publish with ttl',
      call: (bus) => bus.publish('orders', 1, { ttl: '1m' }),
    },
    {
      capability: 'routing',
      less: { routing: 'none' },
      what: 'publish with route',
      call: (bus) => bus.publish('orders', 1, { route: 'eu.created' }),
    },
    {
      capability: 'routing',
      less: { routing: 'none' },
      what: 'subscribe with routes',
      call: subscribe({ routes: ['eu.created'] }),
    },
    {
      capability: 'routing',
      less: { routing: 'exact' },
      what: 'subscribe with wildcards in routes',
      call: subscribe({ routes: ['eu.created', 'eu.*'] }),
    },
    {
      capability: 'routing',
      less: { routing: 'none' },
      what: 'createGroup with routes',
      call: createGroup({ routes: ['eu.created'] }),
    },
    {
      capability: 'order',
      less: { order: 'none' },
      what: "createGroup with order: 'key'",
      call: createGroup({ order: 'key' }),
    },
    {
      capability: 'replay',
      less: { replay: false },
      what: "createGroup with from: 'earliest'",
      call: createGroup({ from: 'earliest' }),
    },
    {
      capability: 'cancelDelay',
      less: { cancelDelay: false },
      what: 'cancelDelayed',
      call: (bus) => bus.cancelDelayed('orders', 'id'),
    },
    {
      capability: 'groups',
      less: { groups: false },
      what: 'subscribe',
      call: subscribe({}),
    },
    {
      capability: 'order',
      less: { order: 'none' },
      what: "subscribe with order: 'key' where there is no order",
      call: subscribe({ order: 'key' }),
    },
    {
      capability: 'order',
      less: { order: 'single' },
      what: "subscribe with order: 'key' where only one member keeps it",
      call: subscribe({ order: 'key' }),
    },
    {
      capability: 'replay',
      less: { replay: false },
      what: "subscribe with from: 'earliest'",
      call: subscribe({ from: 'earliest' }),
    },
    {
      capability: 'replay',
      less: { replay: false },
      what: 'subscribe with from: a Date',
      call: subscribe({ from: new Date() }),
    },
    {
      capability: 'lease',
      less: { lease: false },
      what: 'subscribe with lease',
      call: subscribe({ lease: '1m' }),
    },
    {
      capability: 'circuits',
      less: { circuits: false },
      what: 'park without a circuit store',
      call: subscribe({ order: 'key', onKeyFailure: 'park' }),
    },
    {
      capability: 'circuits',
      less: { circuits: false },
      what: 'bus.circuits',
      call: (bus) => bus.circuits('orders', 'billing'),
    },
    {
      capability: 'deadLetters',
      less: { deadLetters: false },
      what: 'bus.deadLetters',
      call: (bus) => bus.deadLetters('orders', 'billing'),
    },
    {
      capability: 'admin',
      less: { admin: false },
      what: 'bus.admin',
      call: (bus) => bus.admin,
    },
  ]
  for (const { capability, less, what, call } of cases) {
    it(`refuses ${what}, naming the capability '${capability}'`, async () => {
      const bus = await open(less)
      const error = await refusal(() => call(bus))
      expect(error).toBeInstanceOf(UnsupportedError)
      expect(error).toMatchObject({
        code: 'LONGSHORE_UNSUPPORTED',
        capability,
        driver: 'lesser',
        message: expect.stringMatching(
          new RegExp(`lesser \\(lesser 1.0\\) can't do this: .*capability '${capability}'`),
        ),
      })
      await bus.close()
    })

    it(`accepts ${what} where the driver can`, async () => {
      const bus = await open({ delay: 120_000 })
      expect(await refusal(() => call(bus))).toBe('nothing')
      await bus.close()
    })
  }

  it('says the longest delay', async () => {
    const bus = await open({ delay: 60_000 })
    await expect(bus.publish('orders', 1, { delay: '2m' })).rejects.toMatchObject({
      message: expect.stringMatching(/a delay of 120000 ms; its longest is 60000 ms/),
    })
    await bus.publish('orders', 1, { delay: '1m' })
    await bus.close()
  })

  it('refuses the same in a batch, for that member alone', async () => {
    const bus = await open({ ttl: false })
    const outcomes = await bus.publishBatch('orders', [
      { payload: 1 },
      { payload: 2, ttl: '1s' },
      { payload: 3 },
    ])
    expect(outcomes).toMatchObject([
      { status: 'confirmed' },
      { status: 'failed', error: { code: 'LONGSHORE_UNSUPPORTED', capability: 'ttl' } },
      { status: 'confirmed' },
    ])
    await bus.close()
  })

  it('parks with a circuit store that the user gave', async () => {
    const bus = await open({ circuits: false })
    const opened: string[] = []
    const dead: unknown[] = []
    bus.on('dead-lettered', ({ reason }) => dead.push(reason))
    await bus.subscribe(
      'orders',
      {
        group: 'billing',
        order: 'key',
        onKeyFailure: 'park',
        retry: { attempts: 1 },
        circuits: {
          list: async () => [],
          open: async (_topic, _group, key) => void opened.push(key),
          close: async () => true,
          watch: () => () => {},
        },
      },
      () => {
        throw new Error('no')
      },
    )
    await bus.publish('orders', 1, { key: 'k' })
    await bus.publish('orders', 2, { key: 'k' })
    for (let i = 0; i < 50; i++) await Promise.resolve()
    expect(opened).toEqual(['k'])
    expect(dead).toEqual(['exhausted', 'parked'])
    await bus.close()
  })
})
