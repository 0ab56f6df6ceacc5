import diagnostics from 'node:diagnostics_channel'
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import type { BusEvents } from './events.js'
import { createEvents } from './events.js'
import { createTestBus, type TestBus } from './testing/index.js'

type Name = keyof BusEvents

/** For each event, something that makes it happen. */
const causes: { readonly [N in Name]: (bus: TestBus) => Promise<unknown> } = {
  published: (bus) => bus.publish('orders', 1),
  'publish-failed': (bus) => {
    bus.native().broker.faults.publish = () => 'reject'
    return bus.publish('orders', 1).catch(() => {})
  },
  dropped: async (bus) => {
    bus.native().broker.stop()
    const publishing = Promise.allSettled([bus.publish('orders', 1), bus.publish('orders', 2)])
    await bus.advance(0)
    bus.native().broker.start()
    await bus.advance(1000)
    await publishing
  },
  started: (bus) => handle(bus),
  handled: (bus) => handle(bus),
  failed: (bus) => fail(bus),
  retried: (bus) => fail(bus),
  'dead-lettered': (bus) => fail(bus),
  discarded: (bus) => fail(bus, { deadLetter: { keep: false } }),
  returned: async (bus) => {
    await bus.subscribe('orders', { group: 'g', prefetch: 5 }, () => {
      return new Promise<void>((resolve) => bus.clock.setTimer(resolve, 10))
    })
    for (let n = 0; n < 3; n++) await bus.publish('orders', n)
    await bus.advance(0)
    await bus.close()
  },
  revoked: async (bus) => {
    await bus.subscribe('orders', { group: 'g' }, async () => {
      await new Promise<void>((resolve) => bus.clock.setTimer(resolve, 10))
    })
    await bus.publish('orders', 1)
    await bus.advance(0)
    bus.native().broker.sever()
    await bus.handled()
  },
  'settle-failed': async (bus) => {
    let failures = 1
    bus.native().broker.faults.settle = () => (failures-- > 0 ? 'fail' : undefined)
    await handle(bus)
  },
  circuit: (bus) => fail(bus, { order: 'key', onKeyFailure: 'park' }),
  'kill-switch': (bus) => fail(bus, { killSwitch: { minimum: 1, pause: '1s' } }),
  redriven: async (bus) => {
    await fail(bus)
    await bus.deadLetters('orders', 'g').redrive()
  },
  connection: async (bus) => bus.native().broker.restart(),
  closing: (bus) => bus.close(),
  closed: (bus) => bus.close(),
}

async function handle(bus: TestBus): Promise<void> {
  await bus.subscribe('orders', { group: 'g' }, () => {})
  await bus.publish('orders', 1)
  await bus.handled()
}

async function fail(bus: TestBus, options: object = {}): Promise<void> {
  await bus.subscribe('orders', { group: 'g', retry: { attempts: 2 }, ...options }, () => {
    throw new Error('no')
  })
  await bus.publish('orders', 1, { key: 'k' })
  await bus.failed({ count: 2 })
  await bus.advance(0)
}

const about = ['driver', 'message']
const delivery = [...about, 'topic', 'group', 'attempt']
const fields: { readonly [N in Name]: readonly string[] } = {
  published: [...about, 'durationMs'],
  'publish-failed': [...about, 'error'],
  dropped: [...about, 'policy'],
  started: delivery,
  handled: [...delivery, 'durationMs'],
  failed: [...delivery, 'error'],
  retried: [...delivery, 'error', 'delayMs'],
  'dead-lettered': [...delivery, 'error', 'reason'],
  discarded: [...delivery, 'error', 'reason'],
  returned: ['driver', 'topic', 'group', 'count'],
  revoked: [...delivery, 'reason'],
  'settle-failed': [...delivery, 'error'],
  circuit: ['driver', 'topic', 'group', 'key', 'state'],
  'kill-switch': ['driver', 'topic', 'group', 'state', 'failureRate'],
  redriven: ['driver', 'topic', 'group', 'count'],
  connection: ['driver', 'state'],
  closing: ['driver'],
  closed: ['driver', 'drained', 'abandoned'],
}

describe('events', () => {
  for (const name of Object.keys(causes) as Name[]) {
    it(`tells '${name}' to bus.on and to the channel longshore:${name}, with its fields`, async () => {
      const buffer = { max: 1, policy: 'drop-newest' } as const
      await using bus = await createTestBus(name === 'dropped' ? { publish: { buffer } } : {})
      const heard: object[] = []
      const channelled: object[] = []
      const listen = (event: unknown) => void channelled.push(event as object)
      bus.on(name, (event) => heard.push(event))
      diagnostics.subscribe(`longshore:${name}`, listen)
      try {
        await causes[name](bus)
      } finally {
        diagnostics.unsubscribe(`longshore:${name}`, listen)
      }
      expect(heard.length).toBeGreaterThan(0)
      expect(channelled).toEqual(heard)
      expect(Object.keys(heard[0]!)).toEqual(expect.arrayContaining([...fields[name]]))
      expect(heard[0]).toMatchObject({ driver: 'memory' })
    })

    it(`tells '${name}' to the channel alone, without a listener of the bus`, async () => {
      const buffer = { max: 1, policy: 'drop-newest' } as const
      await using bus = await createTestBus(name === 'dropped' ? { publish: { buffer } } : {})
      let count = 0
      const listen = () => void count++
      diagnostics.subscribe(`longshore:${name}`, listen)
      try {
        await causes[name](bus)
      } finally {
        diagnostics.unsubscribe(`longshore:${name}`, listen)
      }
      expect(count).toBeGreaterThan(0)
    })
  }

  it('has a source for each event that the types declare, and docs for each', () => {
    const names = Object.keys(createEvents()).sort()
    expect(names).toEqual(Object.keys(causes).sort())
    const docs = readFileSync(new URL('../../../docs/events.md', import.meta.url), 'utf8')
    for (const name of names) expect(docs).toContain(`\`${name}\``)
  })

  it('stops telling a listener that was taken off, and only that one', async () => {
    await using bus = await createTestBus()
    let calls = 0
    const listener = () => void calls++
    const off = bus.on('published', listener)
    bus.on('published', listener)
    off()
    off()
    await bus.publish('orders', 1)
    expect(calls).toBe(1)
  })

  it('refuses an event that there is not', async () => {
    await using bus = await createTestBus()
    for (const name of ['handeld', 'constructor', 'toString']) {
      expect(() => bus.on(name as never, () => {})).toThrow(
        expect.objectContaining({
          code: 'LONGSHORE_OPTION',
          message: expect.stringMatching(new RegExp(`there is no event '${name}'; docs/events.md`)),
        }),
      )
    }
  })

  it("keeps a listener's error away from the message", async () => {
    await using bus = await createTestBus()
    const caught: unknown[] = []
    const before = process.listeners('uncaughtException')
    process.removeAllListeners('uncaughtException')
    process.on('uncaughtException', (error) => caught.push(error))
    try {
      const error = new Error('a bug in the listener')
      bus.on('handled', () => {
        throw error
      })
      await handle(bus)
      expect(caught).toEqual([error])
      expect(await bus.admin.stats('orders', 'g')).toMatchObject({ inFlight: 0, dead: 0 })
    } finally {
      process.removeAllListeners('uncaughtException')
      for (const listener of before) process.on('uncaughtException', listener)
    }
  })
})
