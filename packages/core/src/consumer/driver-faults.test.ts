import { describe, expect, it } from 'vitest'
import type { Bus, ConsumeOptions } from '../api.js'
import type { Capabilities } from '../capabilities.js'
import { connect } from '../connect.js'
import type { Driver, DriverModule, DriverSubscription, IncomingDelivery, Sink } from '../driver.js'
import { type Logger, memory } from '../index.js'
import { VirtualClock } from '../testing/index.js'

interface Scripted {
  readonly bus: Bus
  readonly clock: VirtualClock
  readonly logs: string[]
  /** What the driver's subscription is asked for. */
  readonly calls: string[]
  readonly sink: () => Sink
  readonly held: IncomingDelivery[]
}

/** A bus on the memory driver, some of whose methods or capabilities are others. */
async function scripted(
  own: Partial<DriverSubscription> = {},
  capabilities: Partial<Capabilities> = {},
  driverOwn: Partial<Driver> = {},
): Promise<Scripted> {
  const clock = new VirtualClock()
  const logs: string[] = []
  const calls: string[] = []
  const held: IncomingDelivery[] = []
  let lastSink: Sink | undefined
  const log = (level: string) => (text: string) => void logs.push(`${level} ${text}`)
  const logger: Logger = {
    debug: () => {},
    info: () => {},
    warn: log('warn'),
    error: log('error'),
  }
  const module: DriverModule = {
    ...memory,
    async connect(config) {
      const driver = await memory.connect(config)
      const all = { ...driver.capabilities, ...capabilities }
      const subscribe: Driver['subscribe'] = async (spec, sink) => {
        lastSink = sink
        const inner = await driver.subscribe(spec, {
          deliver: (batch) => {
            held.push(...batch)
            sink.deliver(batch)
          },
          revoke: (deliveries, reason) => sink.revoke(deliveries, reason),
          fail: (error) => sink.fail(error),
        })
        return new Proxy(inner, {
          get(target, property) {
            const replaced = own[property as keyof DriverSubscription]
            const value = replaced ?? Reflect.get(target, property, target)
            if (typeof value !== 'function') return value
            return (...args: never[]) => {
              calls.push(String(property))
              return (value as (...args: never[]) => unknown).apply(target, args)
            }
          },
        }) as DriverSubscription
      }
      return new Proxy(driver, {
        get(target, property) {
          if (property === 'capabilities') return all
          if (property === 'subscribe') return driverOwn.subscribe ?? subscribe
          const value = driverOwn[property as keyof Driver] ?? Reflect.get(target, property, target)
          return typeof value === 'function' ? value.bind(target) : value
        },
      }) as Driver
    },
  }
  const bus = await connect({ driver: module, clock, logger })
  return { bus, clock, logs, calls, held, sink: () => lastSink! }
}

const options = { group: 'g' } satisfies ConsumeOptions

/** Closes a bus whose timers are virtual. */
async function close({ bus, clock }: Scripted, timeout = 0): Promise<unknown> {
  const closing = bus.close({ timeout })
  for (let i = 0; i < 5; i++) await clock.advance(2000)
  return closing
}

describe('what drivers may do', () => {
  it('settle asynchronously: a message is handled when the driver has taken the ack', async () => {
    let taken: ((value: boolean) => void) | undefined
    const it = await scripted({
      ack: () =>
        new Promise<boolean>((resolve) => {
          taken = resolve
        }),
    })
    let handled = 0
    it.bus.on('handled', () => void handled++)
    await it.bus.subscribe('orders', options, () => {})
    await it.bus.publish('orders', 1)
    await it.clock.advance(10)
    expect(handled).toBe(0)
    taken?.(true)
    await it.clock.advance(0)
    expect(handled).toBe(1)
    await close(it)
  })

  it('refuse an ack as too late: then nothing counts as handled', async () => {
    for (const ack of [() => false, async () => false]) {
      const it = await scripted({ ack })
      let handled = 0
      it.bus.on('handled', () => void handled++)
      const results: boolean[] = []
      await it.bus.subscribe('orders', options, async (payload, context) => {
        if (payload === 'by hand') results.push(await context.ack())
      })
      await it.bus.publish('orders', 1)
      await it.bus.publish('orders', 'by hand')
      await it.clock.advance(10)
      expect(handled).toBe(0)
      expect(results).toEqual([false])
      await close(it)
    }
  })

  it('say yes to everything: all the same they are asked to settle once', async () => {
    for (const orderedRetry of ['broker', 'process'] as const) {
      const yes = async () => true
      const it = await scripted({ ack: yes, retry: yes, deadLetter: yes }, { orderedRetry })
      const results: boolean[][] = []
      const subscribed = { ...options, order: 'key', concurrency: 3 } as const
      await it.bus.subscribe('orders', subscribed, async (first, context) => {
        const step = { ack: () => context.ack(), retry: () => context.retry('1h') }
        const settle = first === 'dead' ? () => context.deadLetter() : step[first as 'ack']
        results.push([
          await settle(),
          await context.ack(),
          await context.retry('1h'),
          await context.deadLetter(),
        ])
        throw new Error('and then it fails')
      })
      for (const first of ['ack', 'retry', 'dead'])
        await it.bus.publish('orders', first, { key: first })
      await it.clock.advance(100)
      expect(results).toEqual(Array(3).fill([true, false, false, false]))
      const settled = it.calls.filter((call) => ['ack', 'retry', 'deadLetter'].includes(call))
      expect(settled.sort()).toEqual(
        orderedRetry === 'broker' ? ['ack', 'deadLetter', 'retry'] : ['ack', 'deadLetter'],
      )
      await close(it)
    }
  })

  it('fail to ack, at once or later: it is tried again until it succeeds, told each time', async () => {
    for (const how of ['throw', 'reject'] as const) {
      let failures = 3
      const it = await scripted({
        ack() {
          if (failures-- <= 0) return true
          if (how === 'reject') return Promise.reject(new Error('connection reset'))
          throw new Error('connection reset')
        },
      })
      let handled = 0
      let told = 0
      it.bus.on('handled', () => void handled++)
      it.bus.on('settle-failed', () => void told++)
      let runs = 0
      await it.bus.subscribe('orders', options, () => void runs++)
      await it.bus.publish('orders', 1)
      await it.clock.advance(5000)
      expect([handled, runs, told]).toEqual([1, 1, 3])
      expect(it.logs).toHaveLength(3)
      expect(it.logs[0]).toMatch(/settling message .* failed; it stays unsettled/)
      await close(it)
    }
  })

  it('fail to hand back: a warning, and the messages come back when the subscription ends', async () => {
    const it = await scripted({ release: () => Promise.reject(new Error('no')) })
    await it.bus.subscribe('orders', { ...options, prefetch: 3 }, () => new Promise(() => {}))
    for (let n = 0; n < 3; n++) await it.bus.publish('orders', n)
    await it.clock.advance(0)
    expect(await close(it)).toEqual({ drained: false, abandoned: 1 })
    expect(it.logs.join()).toMatch(/handing back 2 messages failed/)
  })

  it('hang while they stop or leave: closing meets its timeout all the same', async () => {
    for (const method of ['stop', 'close', 'release'] as const) {
      const it = await scripted({ [method]: () => new Promise(() => {}) })
      await it.bus.subscribe('orders', { ...options, prefetch: 3 }, () => new Promise(() => {}))
      for (let n = 0; n < 3; n++) await it.bus.publish('orders', n)
      await it.clock.advance(0)
      const start = it.clock.now()
      let at = 0
      const closing = it.bus.close({ timeout: '5s' }).then((report) => {
        at = it.clock.now()
        return report
      })
      await it.clock.advance(30_000)
      expect(await closing).toEqual({ drained: false, abandoned: 1 })
      expect(at - start).toBeLessThanOrEqual(7000)
    }
  })

  it('fail while they stop, leave or disconnect: closing goes on, with a warning', async () => {
    const failing = () => Promise.reject(new Error('socket gone'))
    const it = await scripted({ stop: failing, close: failing }, {}, { close: failing })
    await it.bus.subscribe('orders', options, () => {})
    expect(await close(it)).toEqual({ drained: true, abandoned: 0 })
    expect(it.logs.filter((text) => text.includes('socket gone'))).toHaveLength(3)
  })

  it('refuse a subscription: the raw error is wrapped once, and nothing is left', async () => {
    const cause = new Error('ACL')
    const it = await scripted({}, {}, { subscribe: () => Promise.reject(cause) })
    await expect(it.bus.subscribe('orders', options, () => {})).rejects.toMatchObject({
      code: 'LONGSHORE_DRIVER',
      message: "subscribing to 'orders' as group 'g': ACL",
      cause,
    })
    expect(it.bus.health().subscriptions).toEqual([])
    await close(it)
  })

  it('end a subscription for good: done rejects, typed, logged, once', async () => {
    const it = await scripted()
    const subscription = await it.bus.subscribe('orders', options, () => {})
    it.sink().fail(new Error('permission revoked'))
    it.sink().fail(new Error('again'))
    await expect(subscription.done).rejects.toMatchObject({
      code: 'LONGSHORE_DRIVER',
      message: "the subscription of 'orders' as group 'g' ended: permission revoked",
    })
    await it.clock.advance(5000)
    expect(it.logs.filter((text) => text.startsWith('error'))).toHaveLength(1)
    await close(it)
  })

  it('deliver while the intake is being stopped: it goes back once, unstarted, with no ping-pong', async () => {
    let stopped: (() => void) | undefined
    let releases = 0
    const it = await scripted({
      async stop(this: DriverSubscription) {
        await new Promise<void>((resolve) => {
          stopped = resolve
        })
        await this.stop()
      },
      release(this: DriverSubscription, deliveries) {
        // What is given back too early comes right back.
        if (++releases < 100) return this.release(deliveries)
      },
    })
    let runs = 0
    await it.bus.subscribe('orders', options, () => void runs++)
    const closing = it.bus.close({ timeout: '5s' })
    await it.clock.advance(0)
    await it.bus.publish('orders', 1)
    await it.clock.advance(0)
    stopped?.()
    await it.clock.advance(10_000)
    expect(await closing).toEqual({ drained: true, abandoned: 0 })
    expect(runs).toBe(0)
    expect(releases).toBe(1)
  })

  it('have no leases: then there are no heartbeats', async () => {
    for (const lease of [true, false]) {
      const it = await scripted({}, { lease })
      await it.bus.subscribe('orders', options, () => new Promise(() => {}))
      await it.bus.publish('orders', 1)
      await it.clock.advance(35_000)
      expect(it.calls.filter((call) => call === 'heartbeat')).toHaveLength(lease ? 3 : 0)
      await close(it)
    }
  })

  it('count reconnects as deliveries: that is not held against a message that a living consumer lost', async () => {
    const it = await scripted()
    const reasons: string[] = []
    it.bus.on('dead-lettered', ({ reason }) => reasons.push(reason))
    await it.bus.subscribe('orders', { ...options, retry: { maxDeliveries: 3 } }, () => {
      return new Promise(() => {})
    })
    const message = {
      id: 'm',
      topic: 'orders',
      key: undefined,
      body: Buffer.from('1'),
      headers: {},
      contentType: 'application/json',
      timestamp: 0,
      correlationId: undefined,
      causationId: undefined,
    }
    let started = 0
    it.bus.on('started', () => void started++)
    // With a concurrency of 1 only the first one runs; the others are lost while they wait.
    for (let deliveries = 1; deliveries <= 10; deliveries++) {
      const delivery = { message, attempt: 1, deliveries, firstFailedAt: undefined }
      it.sink().deliver([delivery])
      it.sink().revoke([delivery], 'the connection was cut')
    }
    await it.clock.advance(0)
    expect(reasons).toEqual([])
    expect(started).toBe(1)
    await close(it)
  })
})

describe('retries that the process must hold, without an order', () => {
  const process = { retry: 'process' } as const

  it('are held for their time, counted, and let others pass', async () => {
    const it = await scripted({}, process)
    const seen: unknown[] = []
    const start = it.clock.now()
    const retry = { attempts: 3, base: '10s', jitter: 0 } as const
    let dead = 0
    it.bus.on('dead-lettered', () => void dead++)
    await it.bus.subscribe('orders', { ...options, prefetch: 10, retry }, (n, { attempt }) => {
      seen.push([n, attempt, it.clock.now() - start])
      if (n === 0) throw new Error('no')
    })
    await it.bus.publish('orders', 0)
    await it.bus.publish('orders', 1)
    await it.clock.advance(60_000)
    expect(seen).toEqual([
      [0, 1, 0],
      [1, 1, 0],
      [0, 2, 10_000],
      [0, 3, 30_000],
    ])
    expect(dead).toBe(1)
    expect(it.calls).not.toContain('retry')
    await close(it)
  })

  it('go back unsettled when the subscription closes, at once', async () => {
    const it = await scripted({}, process)
    await it.bus.subscribe('orders', options, () => {
      throw new Error('no')
    })
    await it.bus.publish('orders', 1)
    await it.clock.advance(0)
    const start = it.clock.now()
    expect(await it.bus.close()).toEqual({ drained: true, abandoned: 0 })
    expect(it.clock.now()).toBe(start)
    expect(it.calls).toContain('release')
  })

  it('are forgotten when they are taken away', async () => {
    const it = await scripted({}, process)
    const attempts: number[] = []
    await it.bus.subscribe('orders', options, (_, { attempt }) => {
      attempts.push(attempt)
      throw new Error('no')
    })
    await it.bus.publish('orders', 1)
    await it.clock.advance(0)
    const [delivery] = it.held
    it.sink().revoke([delivery!], 'the lease lapsed')
    await it.clock.advance(500)
    expect(attempts).toEqual([1])
    await it.clock.advance(20_000)
    expect(attempts).toEqual([1])
    await close(it)
  })
})

describe('load', () => {
  it('handles many synchronous messages without growing the stack', async () => {
    const it = await scripted()
    let sum = 0
    await it.bus.subscribe<number>('orders', { ...options, prefetch: 50_000 }, (n) => {
      sum += n
    })
    await it.bus.publishBatch(
      'orders',
      Array.from({ length: 20_000 }, () => ({ payload: 1 })),
    )
    await it.clock.advance(0)
    expect(sum).toBe(20_000)
    await close(it)
  })

  it('does not let a slow key stall the others, nor keyless ones', async () => {
    const it = await scripted()
    const seen: unknown[] = []
    const subscribed = { ...options, order: 'key', concurrency: 2 } as const
    await it.bus.subscribe('orders', subscribed, async (n, { message }) => {
      if (message.key === 'slow') await new Promise<void>((r) => it.clock.setTimer(r, 60_000))
      seen.push(n)
    })
    for (let n = 0; n < 10; n++) await it.bus.publish('orders', n, { key: 'slow' })
    for (let n = 10; n < 40; n++) await it.bus.publish('orders', n, { key: `k${n}` })
    for (let n = 40; n < 50; n++) await it.bus.publish('orders', n)
    await it.clock.advance(1000)
    expect(seen).toHaveLength(40)
    await close(it)
  })
})
