import { describe, expect, it } from 'vitest'
import { memory } from '../memory/index.js'
import { createTestBus, VirtualClock } from '../testing/index.js'

describe('invariant 13: one clock per decision', () => {
  it("keeps delays, retries and leases by the broker's clock, whatever the connections' clocks say", async () => {
    const shared = { name: 'two-clocks' }
    // The first connection brings the broker up: its clock is the broker's.
    await using broker = await createTestBus({ memory: shared })
    const wrong = new VirtualClock({ now: broker.clock.now() + 365 * 86_400_000 })
    await using bus = await createTestBus({ memory: shared, clock: wrong })
    await broker.subscribe('orders', { group: 'billing' }, () => {})
    await bus.publish('orders', 1, { delay: '1h' })
    await broker.advance(3_599_999)
    expect(await broker.admin.stats('orders', 'billing')).toMatchObject({ ready: 0, inFlight: 0 })
    await broker.handled({ within: 1 })
  })

  it('asks drivers for durations, never for points in time', async () => {
    const asked: number[] = []
    const clock = new VirtualClock()
    const driver = await memory.connect({
      url: undefined,
      options: {},
      connectTimeoutMs: 1000,
      autoCreate: true,
      clock,
      logger: console,
      onStatus: () => {},
    })
    const publish = driver.publish.bind(driver)
    driver.publish = (batch, settle) => {
      for (const { delayMs, ttlMs } of batch) asked.push(delayMs, ttlMs ?? -1)
      publish(batch, settle)
    }
    const { connect } = await import('../connect.js')
    const bus = await connect({ driver: { ...memory, connect: async () => driver }, clock })
    await bus.publish('orders', 1, { at: new Date(clock.now() + 5000), ttl: '1m' })
    await bus.publish('orders', 1, { at: new Date(clock.now() - 5000) })
    expect(asked).toEqual([5000, 60_000, 0, -1])
    await bus.close()
  })

  it('stands still between two readings when nobody advances it', async () => {
    await using bus = await createTestBus()
    const before = bus.clock.now()
    await bus.subscribe('orders', { group: 'billing' }, () => {})
    const { id } = await bus.publish('orders', 1)
    const [event] = await bus.handled({ id })
    expect(event!.message.timestamp).toBe(before)
    expect(event!.durationMs).toBe(0)
    expect(bus.clock.now()).toBe(before)
  })
})
