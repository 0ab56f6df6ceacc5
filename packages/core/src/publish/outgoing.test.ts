import { getEventListeners } from 'node:events'
import { describe, expect, it } from 'vitest'
import type { BufferOptions } from '../api.js'
import { connect } from '../connect.js'
import type { Driver, DriverModule, OutgoingMessage, PublishSettle } from '../driver.js'
import { memory } from '../memory/index.js'
import { createTestBus, type TestBus, VirtualClock } from '../testing/index.js'

type Publishes = (batch: readonly OutgoingMessage[], settle: PublishSettle) => void

/** A bus on the memory driver with a `publish` of the test's own. */
async function busOn(publish: Publishes, buffer: BufferOptions = {}) {
  const clock = new VirtualClock()
  const module: DriverModule = {
    ...memory,
    async connect(config) {
      const driver: Driver = await memory.connect(config)
      driver.publish = publish
      return driver
    },
  }
  const bus = await connect({ driver: module, clock, publish: { buffer } })
  return { bus, clock }
}

function later<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {})
  return promise
}

/** `pending`, `confirmed` or an error's code, for each, once everything that is ready has run. */
async function states(clock: VirtualClock, promises: readonly Promise<unknown>[]) {
  const found = promises.map(() => 'pending')
  promises.forEach((promise, i) => {
    promise.then(
      () => {
        found[i] = 'confirmed'
      },
      (error) => {
        found[i] = error.code
      },
    )
  })
  await clock.advance(0)
  return [...found]
}

const publishAll = (bus: Pick<TestBus, 'publish'>, count: number, from = 0) =>
  Array.from({ length: count }, (_, n) =>
    later(bus.publish('orders', n + from, { id: `${n + from}`, deadline: '1h' })),
  )

const saturated = 'LONGSHORE_SATURATED'
const dropped = 'LONGSHORE_DROPPED'

describe('invariant 11: the outgoing buffer is bounded, and its policy says what happens when it is full', () => {
  it('blocks the publishers by default, and lets them go on in order', async () => {
    await using bus = await createTestBus({ publish: { buffer: { max: 3 } } })
    const seen: string[] = []
    bus.native().broker.tap('orders', ({ id }) => seen.push(id))
    bus.native().broker.stop()
    const publishing = publishAll(bus, 10)
    await bus.advance(1000)
    expect(bus.health()).toMatchObject({ outgoing: { messages: 3, saturated: true } })
    bus.native().broker.start()
    await bus.advance(2000)
    expect(await states(bus.clock, publishing)).toEqual(Array(10).fill('confirmed'))
    expect(seen).toEqual(Array.from({ length: 10 }, (_, n) => `${n}`))
    expect(bus.health()).toMatchObject({
      status: 'up',
      outgoing: {
        messages: 0,
        bytes: 0,
        blocked: 0,
        saturated: false,
      },
    })
  })

  it('lets a blocked publisher give up with its signal: nothing was sent', async () => {
    await using bus = await createTestBus({ publish: { buffer: { max: 1 } } })
    bus.native().broker.stop()
    const seen: string[] = []
    bus.native().broker.tap('orders', ({ id }) => seen.push(id))
    const [first] = publishAll(bus, 1)
    const abort = new AbortController()
    const second = later(bus.publish('orders', 2, { id: 'aborted', signal: abort.signal }))
    const third = later(bus.publish('orders', 3, { id: 'third' }))
    await bus.advance(0)
    abort.abort(new Error('enough'))
    await expect(second).rejects.toMatchObject({
      code: 'LONGSHORE_ABORTED',
      id: 'aborted',
      cause: { message: 'enough' },
    })
    bus.native().broker.start()
    await bus.advance(2000)
    await Promise.all([first, third])
    expect(seen).toEqual(['0', 'third'])
  })

  it('ends a blocked publisher at its deadline as not sent', async () => {
    await using bus = await createTestBus({ publish: { buffer: { max: 1 } } })
    bus.native().broker.stop()
    publishAll(bus, 1)
    const second = later(bus.publish('orders', 2, { deadline: '3s' }))
    await bus.advance(3000)
    await expect(second).rejects.toMatchObject({ code: 'LONGSHORE_NOT_SENT' })
    bus.native().broker.start()
  })

  it('refuses the newest with a SaturatedError (drop-newest), and reports the drop', async () => {
    const buffer = { max: 3, policy: 'drop-newest' } as const
    await using bus = await createTestBus({ publish: { buffer } })
    const drops: unknown[] = []
    bus.on('dropped', ({ message, policy }) => drops.push([message.id, policy]))
    bus.native().broker.stop()
    const publishing = publishAll(bus, 5)
    expect((await states(bus.clock, publishing)).slice(3)).toEqual([saturated, saturated])
    await expect(publishing[4]).rejects.toMatchObject({
      name: 'SaturatedError',
      id: '4',
      message: expect.stringMatching(
        /was not sent: the outgoing buffer is full \(3 messages, 3 bytes\); slow down, or raise publish\.buffer\.max/,
      ),
    })
    expect(drops).toEqual([
      ['3', 'drop-newest'],
      ['4', 'drop-newest'],
    ])
    expect(bus.health()).toMatchObject({ status: 'down', outgoing: { saturated: true } })
    bus.native().broker.start()
    await bus.advance(2000)
    expect((await states(bus.clock, publishing)).slice(0, 3)).toEqual(Array(3).fill('confirmed'))
  })

  it('drops the oldest unsent with a DroppedError (drop-oldest), never blocks, and reports the drop', async () => {
    const buffer = { max: 3, policy: 'drop-oldest' } as const
    await using bus = await createTestBus({ publish: { buffer } })
    const drops: unknown[] = []
    bus.on('dropped', ({ message, policy }) => drops.push([message.id, policy]))
    bus.native().broker.stop()
    const publishing = publishAll(bus, 3)
    // These three were tried and came back unsent: dropping them is safe.
    await bus.advance(500)
    publishing.push(...publishAll(bus, 2, 3))
    expect(await states(bus.clock, publishing)).toEqual([
      dropped,
      dropped,
      'pending',
      'pending',
      'pending',
    ])
    await expect(publishing[0]).rejects.toMatchObject({
      name: 'DroppedError',
      id: '0',
      message: expect.stringMatching(/was dropped for newer ones: the outgoing buffer is full/),
    })
    expect(drops).toEqual([
      ['0', 'drop-oldest'],
      ['1', 'drop-oldest'],
    ])
    bus.native().broker.start()
    await bus.advance(2000)
    expect((await states(bus.clock, publishing)).slice(2)).toEqual(Array(3).fill('confirmed'))
  })

  it('drops the oldest in one burst before anything was handed to the driver', async () => {
    const buffer = { max: 3, policy: 'drop-oldest' } as const
    await using bus = await createTestBus({ publish: { buffer } })
    const publishing = publishAll(bus, 5)
    expect(await states(bus.clock, publishing)).toEqual([
      dropped,
      dropped,
      'confirmed',
      'confirmed',
      'confirmed',
    ])
  })

  it('does not drop what may have been taken already (drop-oldest)', async () => {
    const settles: (() => void)[] = []
    const { bus, clock } = await busOn(
      (batch, settle) => {
        for (const i of batch.keys()) settles.push(() => settle(i))
      },
      { max: 2, policy: 'drop-oldest' },
    )
    const first = publishAll(bus, 2)
    await clock.advance(0)
    const newest = publishAll(bus, 1, 2)
    expect(await states(clock, [...first, ...newest])).toEqual(['pending', 'pending', dropped])
    for (const settle of settles) settle()
    expect(await states(clock, first)).toEqual(['confirmed', 'confirmed'])
    await bus.close()
  })

  it('counts bytes of bodies as well', async () => {
    const buffer = { maxBytes: 10, policy: 'drop-newest' } as const
    await using bus = await createTestBus({ publish: { buffer } })
    bus.native().broker.stop()
    const publishing = ['1234', '5678', '9'].map((text) => later(bus.publish('orders', text)))
    // Two bodies of six bytes with their quotes do not fit into ten.
    const found = await states(bus.clock, publishing)
    expect(found).toEqual(['pending', saturated, 'pending'])
    expect(bus.health().outgoing.bytes).toBe(9)
    bus.native().broker.start()
    await bus.advance(2000)
    expect(bus.health().outgoing).toEqual({
      messages: 0,
      bytes: 0,
      blocked: 0,
      saturated: false,
    })
  })

  it('lets a single message through that is larger than the whole buffer', async () => {
    for (const policy of ['block', 'drop-oldest', 'drop-newest'] as const) {
      await using bus = await createTestBus({ publish: { buffer: { maxBytes: 10, policy } } })
      await bus.publish('orders', 'x'.repeat(100))
    }
  })

  it('shows a full buffer in health as degraded', async () => {
    const { bus, clock } = await busOn(() => {}, { max: 2 })
    publishAll(bus, 2)
    await clock.advance(0)
    expect(bus.health()).toMatchObject({ status: 'degraded', outgoing: { saturated: true } })
    const closing = bus.close({ timeout: 100 })
    await clock.advance(5000)
    await closing
  })

  it('settles every member of a batch that is larger than the buffer', async () => {
    for (const [policy, expected] of [
      ['block', Array(6).fill('confirmed')],
      ['drop-newest', [...Array(4).fill('confirmed'), ...Array(2).fill('failed')]],
      ['drop-oldest', [...Array(2).fill('failed'), ...Array(4).fill('confirmed')]],
    ] as const) {
      await using bus = await createTestBus({ publish: { buffer: { max: 4, policy } } })
      const outcomes = await bus.publishBatch(
        'orders',
        Array.from({ length: 6 }, (_, n) => ({ payload: n })),
      )
      expect(outcomes.map(({ status }) => status)).toEqual(expected)
    }
  })
})

describe('publishing: outcomes and order', () => {
  it('reports each member of a batch by itself, in order', async () => {
    await using bus = await createTestBus()
    bus.native().broker.faults.publish = ({ id }) =>
      id === 'refused' ? 'reject' : id === 'lost' ? 'lose' : undefined
    const publishing = bus.publishBatch(
      'orders',
      ['fine', 'refused', 'lost', 'fine too'].map((id) => ({ id, payload: id })),
      { deadline: '5s' },
    )
    await bus.advance(5000)
    expect(await publishing).toMatchObject([
      { status: 'confirmed', id: 'fine' },
      { status: 'failed', id: 'refused', error: { code: 'LONGSHORE_REJECTED' } },
      { status: 'unknown', id: 'lost', error: { code: 'LONGSHORE_OUTCOME_UNKNOWN' } },
      { status: 'confirmed', id: 'fine too' },
    ])
  })

  it('resolves an empty batch at once', async () => {
    await using bus = await createTestBus()
    expect(await bus.publishBatch('orders', [])).toEqual([])
  })

  it('sends in the order of publishing, in batches', async () => {
    const batches: number[] = []
    const ids: string[] = []
    const { bus, clock } = await busOn((batch, settle) => {
      batches.push(batch.length)
      batch.forEach(({ message }, i) => {
        ids.push(message.id)
        settle(i)
      })
    })
    const publishing = publishAll(bus, 1000)
    await clock.advance(0)
    await Promise.all(publishing)
    expect(ids).toEqual(Array.from({ length: 1000 }, (_, n) => `${n}`))
    expect(batches.length).toBeLessThan(10)
    await bus.close()
  })

  it('keeps the order when a connection fails half-way: nothing overtakes what is repeated', async () => {
    const taken: string[] = []
    let calls = 0
    const { bus, clock } = await busOn((batch, settle) => {
      const fails = ++calls <= 3
      batch.forEach(({ message }, i) => {
        // The first half of the first call gets through; then the connection is gone.
        if (fails && !(calls === 1 && i < 5)) {
          settle(i, { outcome: 'unsent', error: new Error('gone') })
          return
        }
        taken.push(message.id)
        settle(i)
      })
    })
    const publishing = publishAll(bus, 10)
    await clock.advance(0)
    publishing.push(...publishAll(bus, 10, 10))
    await clock.advance(10_000)
    await Promise.all(publishing)
    expect(taken).toEqual(Array.from({ length: 20 }, (_, n) => `${n}`))
    await bus.close()
  })

  it('pauses between repeats, longer each time, up to a second or so', async () => {
    const times: number[] = []
    const { bus, clock } = await busOn((_, settle) => {
      times.push(clock.now())
      settle(0, { outcome: 'unsent', error: new Error('down') })
    })
    publishAll(bus, 1)
    await clock.advance(20_000)
    const gaps = times.slice(1).map((time, i) => time - times[i]!)
    expect(gaps[0]).toBeLessThanOrEqual(30)
    expect([...gaps].sort((a, b) => a - b)).toEqual(gaps)
    expect(gaps.at(-1)).toBe(1000)
    const closing = bus.close({ timeout: 0 })
    await clock.advance(5000)
    await closing
  })

  it('treats a driver that throws as one whose outcome is unknown, and repeats', async () => {
    let calls = 0
    const { bus, clock } = await busOn((batch, settle) => {
      if (++calls === 1) {
        settle(0)
        throw new Error('a bug')
      }
      batch.forEach((_, i) => {
        settle(i)
      })
    })
    const publishing = publishAll(bus, 3)
    await clock.advance(100)
    expect(await states(clock, publishing)).toEqual(Array(3).fill('confirmed'))
    expect(calls).toBe(2)
    await bus.close()
  })

  it('ignores what a driver settles twice, or after the end', async () => {
    let again: (() => void) | undefined
    const { bus, clock } = await busOn((_, settle) => {
      settle(0)
      settle(0, { outcome: 'rejected', error: new Error('late') })
      settle(7)
      again = () => settle(0, { outcome: 'unknown', error: new Error('later') })
    })
    const publishing = publishAll(bus, 1)
    expect(await states(clock, publishing)).toEqual(['confirmed'])
    again?.()
    await clock.advance(1000)
    expect(bus.health().outgoing).toMatchObject({ messages: 0, bytes: 0 })
    await bus.close()
  })

  it('makes a RejectedError, with the id, of a raw error with which the driver refuses', async () => {
    const cause = new Error('raw')
    const { bus } = await busOn((_, settle) => settle(0, { outcome: 'rejected', error: cause }))
    await expect(bus.publish('orders', 1)).rejects.toMatchObject({
      code: 'LONGSHORE_REJECTED',
      message: expect.stringMatching(/ for 'orders' was refused: raw$/),
      cause,
    })
    await bus.close()
  })

  it('sends nothing when the signal was aborted before', async () => {
    await using bus = await createTestBus()
    const seen: string[] = []
    bus.native().broker.tap('orders', ({ id }) => seen.push(id))
    const signal = AbortSignal.abort()
    await expect(bus.publish('orders', 1, { signal })).rejects.toMatchObject({
      name: 'AbortedError',
      code: 'LONGSHORE_ABORTED',
      message: expect.stringMatching(/nothing was sent/),
    })
    const outcomes = await bus.publishBatch('orders', [{ payload: 1 }], { signal })
    expect(outcomes).toMatchObject([{ status: 'failed', error: { code: 'LONGSHORE_ABORTED' } }])
    expect(seen).toEqual([])
  })

  it('does not stay attached to a long-lived signal', async () => {
    await using bus = await createTestBus()
    const { signal } = new AbortController()
    for (let n = 0; n < 20; n++) await bus.publish('orders', n, { signal })
    expect(getEventListeners(signal, 'abort')).toEqual([])
  })

  it('says unknown when the signal aborts after the message was handed to the driver', async () => {
    const { bus, clock } = await busOn(() => {})
    const abort = new AbortController()
    const publishing = later(bus.publish('orders', 1, { signal: abort.signal }))
    await clock.advance(0)
    abort.abort()
    await expect(publishing).rejects.toMatchObject({
      code: 'LONGSHORE_OUTCOME_UNKNOWN',
      message: expect.stringMatching(/aborted after it was handed to the broker/),
    })
    await bus.close()
  })

  it('says not sent when the signal aborts between two tries of which none got out', async () => {
    await using bus = await createTestBus()
    bus.native().broker.stop()
    const abort = new AbortController()
    const publishing = later(bus.publish('orders', 1, { signal: abort.signal }))
    await bus.advance(100)
    abort.abort()
    await expect(publishing).rejects.toMatchObject({ code: 'LONGSHORE_ABORTED' })
    bus.native().broker.start()
  })

  it('ends what it could not send when closing runs out of time: not sent, or unknown', async () => {
    const { bus, clock } = await busOn(([first], settle) => {
      // The first kind is never answered, the second surely not sent.
      if (first!.message.topic === 'orders') return
      settle(0, { outcome: 'unsent', error: new Error('down') })
    })
    const unknown = later(bus.publish('orders', 1))
    await clock.advance(0)
    const unsent = later(bus.publish('other', 1))
    await clock.advance(0)
    const closing = bus.close({ timeout: '2s' })
    await clock.advance(2000)
    await expect(unknown).rejects.toMatchObject({
      code: 'LONGSHORE_OUTCOME_UNKNOWN',
      message: expect.stringMatching(/the bus closed and the broker may or may not/),
    })
    await expect(unsent).rejects.toMatchObject({
      code: 'LONGSHORE_NOT_SENT',
      message: expect.stringMatching(/was not sent: the bus closed/),
    })
    await closing
  })

  it('tells of every publish that ended without confirmation', async () => {
    await using bus = await createTestBus()
    const failed: unknown[] = []
    const published: unknown[] = []
    bus.on('publish-failed', ({ error, message }) => failed.push([message.id, error.name]))
    bus.on('published', ({ message, driver, durationMs }) =>
      published.push([message.id, driver, durationMs]),
    )
    bus.native().broker.faults.publish = ({ id }) => (id === 'bad' ? 'reject' : undefined)
    await bus.publish('orders', 1, { id: 'bad' }).catch(() => {})
    await bus.publish('orders', 1, { id: 'good' })
    expect(failed).toEqual([['bad', 'RejectedError']])
    expect(published).toEqual([['good', 'memory', 0]])
  })
})
