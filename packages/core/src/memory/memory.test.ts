import { describe, expect, it } from 'vitest'
import type { IncomingDelivery, Sink, SubscriptionSpec } from '../driver.js'
import { connect, type MemoryConnection, silentLogger, topic } from '../index.js'
import { createTestBus, type TestBus, VirtualClock } from '../testing/index.js'
import { memory } from './index.js'

/** Collects what a group's handler gets. */
async function collect(bus: TestBus, name: string, options: object): Promise<unknown[]> {
  const seen: unknown[] = []
  await bus.subscribe(name, options as never, (payload) => void seen.push(payload))
  return seen
}

const range = (count: number, from = 0) => Array.from({ length: count }, (_, n) => n + from)

describe('memory: groups', () => {
  it('gives every group everything, and shares it among the members of one', async () => {
    const shared = { memory: { name: 'groups' }, clock: new VirtualClock() }
    await using bus = await createTestBus(shared)
    await using other = await createTestBus(shared)
    const a1 = await collect(bus, 'orders', { group: 'a' })
    const a2 = await collect(other, 'orders', { group: 'a' })
    const b = await collect(bus, 'orders', { group: 'b' })
    for (const n of range(100)) await bus.publish('orders', n)
    await bus.advance(0)
    expect([...a1, ...a2].sort((x, y) => Number(x) - Number(y))).toEqual(range(100))
    expect(Math.min(a1.length, a2.length)).toBeGreaterThan(30)
    expect(b).toEqual(range(100))
  })

  it('keeps topics apart', async () => {
    await using bus = await createTestBus()
    const seen = await Promise.all(range(20).map((n) => collect(bus, `topic-${n}`, { group: 'g' })))
    for (const n of range(20)) for (const m of range(5)) await bus.publish(`topic-${n}`, [n, m])
    await bus.handled({ count: 100 })
    for (const n of range(20)) expect(seen[n]).toEqual(range(5).map((m) => [n, m]))
  })

  it('keeps for a group what was published while none of its members was there', async () => {
    await using bus = await createTestBus()
    const subscription = await bus.subscribe('orders', { group: 'g' }, () => {})
    await subscription.close()
    for (const n of range(10)) await bus.publish('orders', n)
    const seen = await collect(bus, 'orders', { group: 'g' })
    await bus.handled({ count: 10 })
    expect(seen).toEqual(range(10))
  })

  it('starts a new group at the latest, the earliest, or a Date; an old group where it was', async () => {
    await using bus = await createTestBus()
    await bus.publish('orders', 1)
    await bus.advance(1000)
    const since = new Date(bus.clock.now())
    await bus.publish('orders', 2)
    const latest = await collect(bus, 'orders', { group: 'latest' })
    const earliest = await collect(bus, 'orders', { group: 'earliest', from: 'earliest' })
    const dated = await collect(bus, 'orders', { group: 'dated', from: since })
    await bus.publish('orders', 3)
    await bus.advance(0)
    expect(latest).toEqual([3])
    expect(earliest).toEqual([1, 2, 3])
    expect(dated).toEqual([2, 3])
    const again = await collect(bus, 'orders', { group: 'earliest', from: 'earliest' })
    await bus.advance(0)
    expect(again).toEqual([])
  })

  it('remembers no more than retain says, and cannot replay with 0', async () => {
    await using bus = await createTestBus({ memory: { retain: 3 } })
    for (const n of range(10)) await bus.publish('orders', n)
    const seen = await collect(bus, 'orders', { group: 'g', from: 'earliest' })
    await bus.advance(0)
    expect(seen).toEqual([7, 8, 9])
    await using none = await createTestBus({ memory: { retain: 0 } })
    await expect(
      none.subscribe('orders', { group: 'g', from: 'earliest' }, () => {}),
    ).rejects.toMatchObject({ capability: 'replay' })
  })

  it('lets all members of a group ask for one order only', async () => {
    await using bus = await createTestBus()
    const first = await bus.subscribe('orders', { group: 'g', order: 'key' }, () => {})
    await expect(bus.subscribe('orders', { group: 'g' }, () => {})).rejects.toMatchObject({
      code: 'LONGSHORE_CONFLICT',
      message: expect.stringMatching(/has members with order 'key'.*must ask for the same order/),
    })
    expect(bus.health().subscriptions).toHaveLength(1)
    await first.close()
    for (const n of range(10)) await bus.publish('orders', n, { key: `k${n % 3}` })
    const seen = await collect(bus, 'orders', { group: 'g' })
    await bus.handled({ count: 10 })
    expect(seen).toEqual(range(10))
  })
})

describe('memory: brokers', () => {
  it('shares a broker among connections with one name, by URL or option, and keeps nameless ones apart', async () => {
    const clock = new VirtualClock()
    const a = await connect('memory://shared-by-url', { clock })
    const b = await connect({ driver: 'memory', options: { name: 'shared-by-url' }, clock })
    const broker = (bus: { native(): unknown }) => (bus.native() as MemoryConnection).broker
    expect(broker(a)).toBe(broker(b))
    const c = await connect('memory://', { clock })
    const d = await connect('memory://', { clock })
    expect(broker(c)).not.toBe(broker(d))
    for (const bus of [a, b, c, d]) await bus.close()
    const e = await connect('memory://shared-by-url', { clock })
    expect(broker(e).connections.size).toBe(1)
    await e.close()
  })

  it('reads its options from the URL; those given beside it win', async () => {
    const bus = await connect({
      url: 'memory://from-url?retain=5&partitions=4&maxBytes=1000',
      driver: 'memory',
      options: { retain: 7 },
    })
    expect((bus.native() as MemoryConnection).broker.options).toMatchObject({
      name: 'from-url',
      retain: 7,
      partitions: 4,
      maxBytes: 1000,
    })
    expect(bus.capabilities).toMatchObject({ orderedRetry: 'process', maxBytes: 1000 })
    await bus.close()
  })

  it('takes messages of producers that know nothing of Longshore', async () => {
    await using bus = await createTestBus()
    const got: unknown[] = []
    await bus.subscribe('orders', { group: 'g' }, (payload, { message }) => {
      got.push(payload, message.id, message.headers, message.key, message.correlationId)
    })
    const headers = { 'X-Native': 'yes' }
    bus.native().broker.publish('orders', Buffer.from('{"n":1}'), { headers, key: 'k' })
    const [event] = await bus.handled()
    expect(got).toEqual([{ n: 1 }, event!.message.id, headers, 'k', undefined])
    expect(event!.message.id).toMatch(/^memory:orders:\d+$/)
  })

  it('has one listener per tap, until it is stopped', async () => {
    await using bus = await createTestBus()
    const seen: string[] = []
    const stop = bus.native().broker.tap('orders', ({ id }) => seen.push(id))
    await bus.publish('orders', 1, { id: 'a' })
    stop()
    await bus.publish('orders', 1, { id: 'b' })
    expect(seen).toEqual(['a'])
  })
})

describe('memory: delays', () => {
  it('delivers a delayed message not before its time, and not after', async () => {
    await using bus = await createTestBus()
    const seen = await collect(bus, 'orders', { group: 'g' })
    await bus.publish('orders', 'delay', { delay: '2h' })
    await bus.publish('orders', 'at', { at: new Date(bus.clock.now() + 3_600_000) })
    await bus.publish('orders', 'past', { at: new Date(bus.clock.now() - 1) })
    await bus.advance(0)
    expect(seen).toEqual(['past'])
    await bus.advance(3_599_999)
    expect(seen).toEqual(['past'])
    await bus.advance(1)
    expect(seen).toEqual(['past', 'at'])
    await bus.advance(3_600_000)
    expect(seen).toEqual(['past', 'at', 'delay'])
  })

  it('does not hold a short delay behind a long one', async () => {
    await using bus = await createTestBus()
    const seen = await collect(bus, 'orders', { group: 'g' })
    await bus.publish('orders', 'long', { delay: '7d' })
    await bus.publish('orders', 'short', { delay: '1s' })
    await bus.advance(1000)
    expect(seen).toEqual(['short'])
  })

  it('keeps the order of publishing among those due at the same time', async () => {
    await using bus = await createTestBus()
    const seen = await collect(bus, 'orders', { group: 'g' })
    for (const n of range(50)) await bus.publish('orders', n, { delay: '1m' })
    await bus.handled({ count: 50 })
    expect(seen).toEqual(range(50))
  })

  it('reaches groups that were made in the meantime', async () => {
    await using bus = await createTestBus()
    await bus.publish('orders', 1, { delay: '1m' })
    await bus.advance(1000)
    await bus.subscribe('orders', { group: 'late' }, () => {})
    await bus.handled({ group: 'late' })
  })

  it('can be taken back until it is delivered', async () => {
    await using bus = await createTestBus()
    const seen = await collect(bus, 'orders', { group: 'g' })
    const { id } = await bus.publish('orders', 'cancelled', { delay: '1m' })
    const kept = await bus.publish('orders', 'kept', { delay: '1m' })
    expect(await bus.cancelDelayed('orders', id)).toBe(true)
    expect(await bus.cancelDelayed(topic('orders'), id)).toBe(false)
    expect(await bus.cancelDelayed('orders', 'unknown')).toBe(false)
    expect(await bus.cancelDelayed('nowhere', id)).toBe(false)
    await bus.handled({ id: kept.id })
    expect(await bus.cancelDelayed('orders', kept.id)).toBe(false)
    expect(seen).toEqual(['kept'])
  })
})

describe('memory: priority, ttl, dedupe, limits', () => {
  it('delivers higher priorities first, and equal ones in order', async () => {
    await using bus = await createTestBus()
    const first = await bus.subscribe('orders', { group: 'g' }, () => {})
    await first.close()
    for (const [payload, priority] of [
      ['low', 0],
      ['none', undefined],
      ['high', 9],
      ['middle', 5],
      ['high too', 9],
    ] as const) {
      await bus.publish('orders', payload, priority === undefined ? {} : { priority })
    }
    const seen = await collect(bus, 'orders', { group: 'g' })
    await bus.handled({ count: 5 })
    expect(seen).toEqual(['high', 'high too', 'middle', 'low', 'none'])
  })

  it('drops what was not delivered within its ttl', async () => {
    await using bus = await createTestBus()
    const first = await bus.subscribe('orders', { group: 'g' }, () => {})
    await first.close()
    await bus.publish('orders', 'short', { ttl: '1s' })
    await bus.publish('orders', 'long', { ttl: '1h' })
    await bus.advance(1000)
    const seen = await collect(bus, 'orders', { group: 'g' })
    await bus.handled()
    expect(seen).toEqual(['long'])
  })

  it('counts the ttl of a delayed message from when it is due', async () => {
    await using bus = await createTestBus()
    const seen = await collect(bus, 'orders', { group: 'g' })
    await bus.publish('orders', 1, { delay: '1h', ttl: '1s' })
    await bus.advance(3_600_000)
    expect(seen).toEqual([1])
  })

  it('does not lose a retry to the ttl: the message was delivered in time', async () => {
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g', retry: { base: '1m' } }, (_, { attempt }) => {
      if (attempt === 1) throw new Error('no')
    })
    await bus.publish('orders', 1, { ttl: '10s' })
    expect(await bus.handled()).toMatchObject([{ attempt: 2 }])
  })

  it('stores a repeated id once within the dedupe window, and confirms both', async () => {
    await using bus = await createTestBus({ memory: { dedupeWindow: 60_000 } })
    expect(bus.capabilities.dedupe).toBe(true)
    const seen = await collect(bus, 'orders', { group: 'g' })
    await bus.publish('orders', 1, { id: 'same' })
    await bus.publish('orders', 2, { id: 'same' })
    await bus.advance(59_999)
    await bus.publish('orders', 3, { id: 'same' })
    await bus.advance(1)
    await bus.publish('orders', 4, { id: 'same' })
    await bus.advance(0)
    expect(seen).toEqual([1, 4])
  })

  it('stores a publish once whose confirmation was lost, within the dedupe window', async () => {
    await using bus = await createTestBus({ memory: { dedupeWindow: 60_000 } })
    const seen = await collect(bus, 'orders', { group: 'g' })
    let lost = 3
    bus.native().broker.faults.publish = () => (lost-- > 0 ? 'lose-confirm' : undefined)
    const publishing = bus.publish('orders', 1)
    await bus.advance(10_000)
    await publishing
    expect(seen).toEqual([1])
  })

  it('refuses messages past maxBacklog with a typed error that names the cure, and takes them again later', async () => {
    await using bus = await createTestBus({ memory: { maxBacklog: 5 } })
    const first = await bus.subscribe('orders', { group: 'g' }, () => {})
    await first.close()
    for (const n of range(5)) await bus.publish('orders', n)
    await expect(bus.publish('orders', 5)).rejects.toMatchObject({
      code: 'LONGSHORE_REJECTED',
      message: expect.stringMatching(
        /backlog of 5 messages, the memory driver's maxBacklog; raise/,
      ),
    })
    await expect(bus.publish('orders', 6, { delay: '1h' })).rejects.toMatchObject({
      code: 'LONGSHORE_REJECTED',
    })
    await bus.subscribe('orders', { group: 'g' }, () => {})
    await bus.handled({ count: 5 })
    await bus.publish('orders', 7)
  })
})

describe('memory: admin', () => {
  it('creates, counts and deletes', async () => {
    await using bus = await createTestBus()
    const { admin } = bus
    await admin.createTopic('orders')
    await admin.createTopic('orders')
    await admin.createGroup('orders', 'g', { order: 'none', from: 'latest' })
    await bus.publish('orders', 1)
    expect(await admin.stats('orders', 'g')).toEqual({ ready: 1, delayed: 0, inFlight: 0, dead: 0 })
    await admin.deleteGroup('orders', 'g')
    const missing = { code: 'LONGSHORE_NOT_FOUND' }
    await expect(admin.stats('orders', 'g')).rejects.toMatchObject(missing)
    await expect(admin.deleteGroup('orders', 'g')).rejects.toMatchObject(missing)
    await admin.deleteTopic('orders')
    await expect(admin.deleteTopic('orders')).rejects.toMatchObject({
      ...missing,
      message: "there is no topic 'orders'",
    })
  })

  it('refuses invalid names, as everywhere', async () => {
    await using bus = await createTestBus()
    const invalid = { code: 'LONGSHORE_NAME' }
    await expect(bus.admin.createTopic('a b')).rejects.toMatchObject(invalid)
    await expect(
      bus.admin.createGroup('orders', 'a b', { order: 'none', from: 'latest' }),
    ).rejects.toMatchObject(invalid)
  })

  it('refuses options that make no group', async () => {
    await using bus = await createTestBus()
    for (const [options, message] of [
      [{ order: 'keys' }, /order is "keys"/],
      [{ from: new Date(Number.NaN) }, /createGroup\('orders'\): from is .* or a valid Date/],
      [{ route: 'a' }, /there is no option 'route'; did you mean 'routes'\?/],
      [null, /options must be an object/],
    ] as const) {
      await expect(bus.admin.createGroup('orders', 'g', options as never)).rejects.toThrow(message)
    }
  })

  it('takes a running message away when its topic is deleted; what comes later flows', async () => {
    await using bus = await createTestBus()
    const acks: boolean[] = []
    let go!: () => void
    const gate = new Promise<void>((resolve) => {
      go = resolve
    })
    await bus.subscribe('orders', { group: 'g' }, async (n, context) => {
      if (n !== 'old') return
      await gate
      acks.push(await context.ack())
    })
    await bus.publish('orders', 'old')
    await bus.advance(0)
    await bus.admin.deleteTopic('orders')
    go()
    await bus.publish('orders', 'new')
    await bus.handled()
    expect(acks).toEqual([false])
  })

  it('forgets delayed and waiting messages of a deleted topic', async () => {
    await using bus = await createTestBus()
    const seen = await collect(bus, 'orders', { group: 'g', retry: { base: '1m' } })
    await bus.publish('orders', 'delayed', { delay: '1h' })
    await bus.admin.deleteTopic('orders')
    await bus.publish('orders', 'new', { delay: '2h' })
    await bus.handled()
    expect(seen).toEqual(['new'])
  })
})

/** A member of a group that does nothing by itself: no heartbeats, no settling. */
async function rawMember(clock: VirtualClock, options: object, spec: Partial<SubscriptionSpec>) {
  const driver = await memory.connect({
    url: undefined,
    options,
    connectTimeoutMs: 1000,
    autoCreate: true,
    clock,
    logger: silentLogger,
    onStatus: () => {},
  })
  const got: IncomingDelivery[] = []
  const revoked: [string, string][] = []
  const sink: Sink = {
    deliver: (batch) => void got.push(...batch),
    revoke: (deliveries, reason) => {
      for (const { message } of deliveries) revoked.push([message.id, reason])
    },
    fail: () => {},
  }
  const subscription = await driver.subscribe(
    {
      topic: 'orders',
      group: 'g',
      order: 'none',
      window: 10,
      from: 'latest',
      routes: undefined,
      leaseMs: 1000,
      ...spec,
    },
    sink,
  )
  return { driver, subscription, got, revoked }
}

describe('memory: leases', () => {
  it('gives a delivery to another member when its lease lapsed, counted once more', async () => {
    const options = { name: 'leases' }
    await using bus = await createTestBus({ memory: options })
    const dead = await rawMember(bus.clock, options, {})
    const { id } = await bus.publish('orders', 1)
    await bus.advance(0)
    expect(dead.got).toHaveLength(1)
    await dead.subscription.stop()
    const seen: [number, number][] = []
    await bus.subscribe('orders', { group: 'g' }, (_, { attempt, deliveries }) => {
      seen.push([attempt, deliveries])
    })
    await bus.advance(999)
    expect(seen).toEqual([])
    await bus.handled({ id, within: 1 })
    expect(seen).toEqual([[1, 2]])
    expect(dead.revoked).toEqual([[id, 'the lease lapsed']])
    expect(await dead.subscription.ack(dead.got[0]!)).toBe(false)
    await dead.driver.close(0)
  })

  it('renews leases with a heartbeat', async () => {
    const options = { name: 'heartbeats' }
    await using bus = await createTestBus({ memory: options })
    const slow = await rawMember(bus.clock, options, {})
    await bus.publish('orders', 1)
    await bus.advance(0)
    for (let i = 0; i < 10; i++) {
      await bus.advance(900)
      slow.subscription.heartbeat()
    }
    expect(slow.revoked).toEqual([])
    expect(await slow.subscription.ack(slow.got[0]!)).toBe(true)
    await slow.driver.close(0)
  })

  it('keeps a slow handler of a living consumer from losing its delivery', async () => {
    await using bus = await createTestBus()
    let runs = 0
    await bus.subscribe('orders', { group: 'g', lease: '3s' }, async (_, { signal }) => {
      runs++
      await new Promise<void>((resolve) => bus.clock.setTimer(resolve, 600_000))
      expect(signal.aborted).toBe(false)
    })
    await bus.publish('orders', 1)
    await bus.handled()
    expect(runs).toBe(1)
  })

  it('takes all of a member with key order when one lease lapses, and gives them on in order', async () => {
    const options = { name: 'ordered-leases', partitions: 1 }
    await using bus = await createTestBus({ memory: options })
    const dead = await rawMember(bus.clock, options, { order: 'key' })
    for (const n of range(5)) await bus.publish('orders', n, { key: `k${n % 2}` })
    await bus.advance(0)
    expect(dead.got).toHaveLength(5)
    await dead.subscription.stop()
    const seen = await collect(bus, 'orders', { group: 'g', order: 'key' })
    await bus.handled({ count: 5 })
    expect(seen.filter((n) => Number(n) % 2 === 0)).toEqual([0, 2, 4])
    expect(seen.filter((n) => Number(n) % 2 === 1)).toEqual([1, 3])
    await dead.driver.close(0)
  })

  it('never pushes more than the window', async () => {
    const options = { name: 'window' }
    await using bus = await createTestBus({ memory: options })
    const member = await rawMember(bus.clock, options, { window: 3 })
    for (const n of range(10)) await bus.publish('orders', n)
    await bus.advance(0)
    expect(member.got).toHaveLength(3)
    member.subscription.ack(member.got[0]!)
    await bus.advance(0)
    expect(member.got).toHaveLength(4)
    member.subscription.pause()
    member.subscription.ack(member.got[1]!)
    await bus.advance(0)
    expect(member.got).toHaveLength(4)
    member.subscription.resume()
    await bus.advance(0)
    expect(member.got).toHaveLength(5)
    await member.driver.close(0)
  })
})

describe('memory: time while nobody can take a message', () => {
  const cases = [
    { what: 'no members', leave: true },
    { what: 'a full window', leave: false },
  ]
  for (const { what, leave } of cases) {
    it(`passes at its own pace when a held key comes due with ${what}`, async () => {
      const clock = new VirtualClock()
      let timers = 0
      const setTimer = clock.setTimer.bind(clock)
      clock.setTimer = (callback, ms) => {
        if (++timers > 1000) throw new Error('a thousand timers')
        return setTimer(callback, ms)
      }
      const options = { name: `held-${leave}` }
      await using bus = await createTestBus({ memory: options, clock })
      const member = await rawMember(clock, options, {
        order: 'key',
        window: 1,
        leaseMs: 3_600_000,
      })
      await bus.publish('orders', 1, { key: 'a' })
      await bus.publish('orders', 2, { key: 'b' })
      await bus.advance(0)
      const [first] = member.got
      const request = { delayMs: 100, attempt: 2, firstFailedAt: clock.now(), hold: true }
      expect(await member.subscription.retry(first!, request)).toBe(true)
      await bus.advance(0)
      if (leave) await member.subscription.close()
      await bus.advance(10_000)
      if (leave) await bus.subscribe('orders', { group: 'g', order: 'key' }, () => {})
      else await member.subscription.ack(member.got[1]!)
      await bus.advance(0)
      if (leave) await bus.handled({ count: 2 })
      else expect(member.got[2]).toMatchObject({ attempt: 2 })
      await member.driver.close(0)
    })
  }

  it('does not deliver a held retry early when the order of the group changes', async () => {
    await using bus = await createTestBus()
    const first = await bus.subscribe('orders', { group: 'g', order: 'key' }, () => {
      throw new Error('no')
    })
    await bus.publish('orders', 1, { key: 'k' })
    await bus.retried()
    await first.close()
    const start = bus.clock.now()
    await bus.subscribe('orders', { group: 'g' }, () => {})
    await bus.handled()
    expect(bus.clock.now() - start).toBe(1000)
  })
})

describe('memory: dead letters', () => {
  async function withLetters(count: number) {
    const bus = await createTestBus()
    let failing = true
    const seen: unknown[] = []
    const options = { group: 'g', retry: { attempts: 1 } }
    await bus.subscribe('orders', options, (n) => {
      seen.push(n)
      if (failing) throw new Error(`no ${n}`)
    })
    await bus.subscribe('orders', { group: 'other' }, () => {})
    for (const n of range(count)) await bus.publish('orders', n, { id: `${n}`, key: `k${n % 2}` })
    await bus.deadLettered({ count })
    seen.length = 0
    const succeed = () => {
      failing = false
    }
    return { bus, seen, succeed }
  }

  it('lists, gets, counts and filters them, oldest first', async () => {
    const { bus } = await withLetters(6)
    const letters = bus.deadLetters('orders', 'g')
    const ids = async (filter: object) => {
      const found = []
      for await (const { id } of letters.list(filter)) found.push(id)
      return found
    }
    expect(await ids({})).toEqual(['0', '1', '2', '3', '4', '5'])
    expect(await ids({ key: 'k1' })).toEqual(['1', '3', '5'])
    expect(await ids({ ids: ['4', '2', 'x'] })).toEqual(['2', '4'])
    expect(await ids({ id: '2', ids: ['4'] })).toEqual([])
    expect(await ids({ reason: 'permanent' })).toEqual([])
    expect(
      await ids({
        where: ({ failure }: never) =>
          /[34]/.test((failure as { errorMessage: string }).errorMessage),
      }),
    ).toEqual(['3', '4'])
    expect(await ids({ key: 'k0', limit: 2 })).toEqual(['0', '2'])
    expect(await ids({ limit: 0 })).toEqual([])
    expect(await ids({ signal: AbortSignal.abort() })).toEqual([])
    expect(await letters.count({ key: 'k0' })).toBe(3)
    expect(await letters.get('3')).toMatchObject({ id: '3', key: 'k1', timestamp: bus.clock.now() })
    expect(await letters.get('x')).toBeUndefined()
    expect(await bus.deadLetters('orders', 'other').count()).toBe(0)
    await expect(bus.deadLetters('nowhere', 'g').count()).rejects.toMatchObject({
      code: 'LONGSHORE_NOT_FOUND',
    })
    await bus.close()
  })

  it('redrives one, some and all, in order, to the group that failed alone, as attempt 1', async () => {
    const { bus, seen, succeed } = await withLetters(6)
    succeed()
    const redriven: number[] = []
    bus.on('redriven', ({ count }) => redriven.push(count))
    const letters = bus.deadLetters('orders', 'g')
    expect(await letters.redrive({ id: '3' })).toBe(1)
    expect(await letters.redrive({ id: '3' })).toBe(0)
    await bus.advance(0)
    expect(seen).toEqual([3])
    expect(await letters.redrive({ limit: 2 })).toBe(2)
    await bus.advance(0)
    expect(await letters.redrive()).toBe(3)
    await bus.advance(0)
    expect(seen).toEqual([3, 0, 1, 2, 4, 5])
    expect(await letters.count()).toBe(0)
    expect(await letters.redrive()).toBe(0)
    expect(redriven).toEqual([1, 2, 3])
    expect(await bus.handled({ group: 'other', count: 6 })).toHaveLength(6)
    const events = await bus.handled({ group: 'g', count: 6 })
    expect(events.every(({ attempt }) => attempt === 1)).toBe(true)
    await bus.close()
  })

  it('discards what is named, and refuses to discard everything by accident', async () => {
    const { bus } = await withLetters(4)
    const letters = bus.deadLetters('orders', 'g')
    expect(await letters.discard({ key: 'k0' })).toBe(2)
    for (const filter of [undefined, {}, { signal: new AbortController().signal }]) {
      await expect(letters.discard(filter as never)).rejects.toMatchObject({
        code: 'LONGSHORE_OPTION',
        message: expect.stringMatching(/discard\(\{ where: \(\) => true \}\)/),
      })
    }
    expect(await letters.count()).toBe(2)
    expect(await letters.discard({ where: () => true })).toBe(2)
    expect(await letters.count()).toBe(0)
    await bus.close()
  })

  it('refuses unknown filters and wrong limits', async () => {
    await using bus = await createTestBus()
    const letters = bus.deadLetters('orders', 'g')
    await expect(letters.redrive({ ID: 'x' } as never)).rejects.toMatchObject({
      code: 'LONGSHORE_UNKNOWN_OPTION',
      message: expect.stringMatching(/deadLetters\.redrive: there is no option 'ID'; did you mean/),
    })
    await expect(letters.redrive({ limit: -1 })).rejects.toMatchObject({
      code: 'LONGSHORE_OPTION',
      message: expect.stringMatching(/limit is -1; it must be a whole number ≥ 0/),
    })
    await expect(letters.count({ limit: 1.5 })).rejects.toMatchObject({ code: 'LONGSHORE_OPTION' })
  })
})
