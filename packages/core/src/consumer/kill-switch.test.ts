import { describe, expect, it } from 'vitest'
import { createTestBus, VirtualClock } from '../testing/index.js'
import { KillSwitch } from './kill-switch.js'

describe('KillSwitch', () => {
  const outcomes = (killSwitch: KillSwitch, text: string) =>
    [...text].map((each) => killSwitch.record(each === '+'))

  it('trips at the failure rate, not before the minimum, and on a failure only', () => {
    const options = { failureRate: 0.5, minimum: 4 }
    expect(outcomes(new KillSwitch(options, new VirtualClock()), '---')).not.toContain(true)
    expect(outcomes(new KillSwitch(options, new VirtualClock()), '++--')).toEqual([
      false,
      false,
      false,
      true,
    ])
    expect(outcomes(new KillSwitch(options, new VirtualClock()), '+++--')).not.toContain(true)
    expect(outcomes(new KillSwitch(options, new VirtualClock()), '---+')).not.toContain(true)
  })

  it('forgets what is older than its window', async () => {
    const clock = new VirtualClock()
    const killSwitch = new KillSwitch({ minimum: 4, window: '10s' }, clock)
    outcomes(killSwitch, '---')
    await clock.advance(10_000)
    expect(killSwitch.record(false)).toBe(false)
    await clock.advance(4000)
    expect(outcomes(killSwitch, '---')).toEqual([false, false, true])
    killSwitch.reset()
    expect(killSwitch.failureRate).toBe(0)
  })
})

describe('the kill switch of a subscription', () => {
  const killSwitch = { failureRate: 0.5, minimum: 5, pause: '30s' } as const

  it('trips, leaves the backlog in the broker uncounted, and resumes by itself', async () => {
    await using bus = await createTestBus()
    const states: unknown[] = []
    bus.on('kill-switch', ({ state, failureRate }) => states.push([state, failureRate]))
    let failing = true
    let runs = 0
    await bus.subscribe('orders', { group: 'g', killSwitch, retry: { base: '1m' } }, () => {
      runs++
      if (failing) throw new Error('the database is down')
    })
    for (let n = 0; n < 50; n++) await bus.publish('orders', n)
    await bus.advance(29_999)
    expect(runs).toBe(5)
    expect(await bus.admin.stats('orders', 'g')).toEqual({
      ready: 45,
      delayed: 5,
      inFlight: 0,
      dead: 0,
    })
    expect(bus.health()).toMatchObject({
      status: 'degraded',
      subscriptions: [{ state: 'tripped' }],
    })
    failing = false
    await bus.advance(1)
    await bus.handled({ count: 45, within: 0 })
    const events = await bus.handled({ count: 50 })
    expect(events.filter(({ attempt }) => attempt === 1)).toHaveLength(45)
    expect(states).toEqual([
      ['tripped', 1],
      ['resumed', 0],
    ])
    expect(bus.health().status).toBe('up')
  })

  it('trips again when it is not better', async () => {
    await using bus = await createTestBus()
    let trips = 0
    bus.on('kill-switch', ({ state }) => void (state === 'tripped' && trips++))
    await bus.subscribe(
      'orders',
      { group: 'g', killSwitch, retry: { base: '1h', max: '1h' } },
      () => {
        throw new Error('no')
      },
    )
    for (let n = 0; n < 50; n++) await bus.publish('orders', n)
    await bus.advance(65_000)
    expect(trips).toBe(3)
  })

  it('can be resumed, paused and closed by hand while tripped', async () => {
    await using bus = await createTestBus()
    let failing = true
    const subscription = await bus.subscribe('orders', { group: 'g', killSwitch }, () => {
      if (failing) throw new Error('no')
    })
    for (let n = 0; n < 10; n++) await bus.publish('orders', n)
    await bus.advance(0)
    expect(subscription.state).toBe('tripped')
    failing = false
    subscription.resume()
    expect(subscription.state).toBe('running')
    await bus.handled({ count: 5, within: 0 })
    subscription.pause()
    await bus.advance(120_000)
    expect(subscription.state).toBe('paused')
    expect(await subscription.close()).toEqual({ drained: true, abandoned: 0 })
  })

  it('stays paused by hand when it was paused while tripped', async () => {
    await using bus = await createTestBus()
    const subscription = await bus.subscribe('orders', { group: 'g', killSwitch }, () => {
      throw new Error('no')
    })
    for (let n = 0; n < 10; n++) await bus.publish('orders', n)
    await bus.advance(0)
    expect(subscription.state).toBe('tripped')
    subscription.pause()
    await bus.advance(60_000)
    expect(subscription.state).toBe('paused')
  })

  it('is off by default, and on with its defaults when true', async () => {
    await using bus = await createTestBus()
    for (const [group, options, state] of [
      ['off', {}, 'running'],
      ['false', { killSwitch: false }, 'running'],
      ['on', { killSwitch: true }, 'tripped'],
    ] as const) {
      await bus.subscribe(group, { group, retry: { attempts: 1 }, ...options }, () => {
        throw new Error('no')
      })
      for (let n = 0; n < 20; n++) await bus.publish(group, n)
      await bus.advance(0)
      expect(bus.health().subscriptions.at(-1)).toMatchObject({ group, state })
    }
  })

  it('trips with order key and a blocked key too, and time goes on', async () => {
    for (const partitions of [0, 8]) {
      let timers = 0
      const clock = new VirtualClock()
      const setTimer = clock.setTimer.bind(clock)
      clock.setTimer = (callback, ms) => {
        if (++timers > 5000) throw new Error('too many timers')
        return setTimer(callback, ms)
      }
      await using bus = await createTestBus({ clock, memory: { partitions } })
      let failing = true
      const options = { group: 'g', order: 'key', concurrency: 4, killSwitch } as const
      await bus.subscribe('orders', options, () => {
        if (failing) throw new Error('no')
      })
      for (let n = 0; n < 20; n++) await bus.publish('orders', n, { key: `k${n % 4}` })
      await bus.advance(10_000)
      expect(bus.health().subscriptions).toMatchObject([{ state: 'tripped' }])
      failing = false
      await bus.handled({ count: 20 })
    }
  })
})
