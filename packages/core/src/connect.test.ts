import { tmpdir } from 'node:os'
import { describe, expect, it, vi } from 'vitest'
import { connect } from './connect.js'
import type { DriverModule } from './driver.js'
import { LongshoreError } from './errors.js'
import { memory } from './memory/index.js'
import { createTestBus, VirtualClock } from './testing/index.js'

// What the types would refuse is asked for all the same: JavaScript and configuration files have no types.
const connectTo = connect as (...args: unknown[]) => ReturnType<typeof connect>

describe('connect', () => {
  it('picks the driver by the scheme of the URL, by its name, or takes one as an object', async () => {
    for (const target of [
      'memory://',
      'MEMORY://',
      { url: 'memory://' },
      { driver: 'memory' },
      { driver: 'memory', url: 'memory://some-name' },
      { driver: memory },
    ]) {
      const bus = await connectTo(target)
      expect(bus.driver).toBe('memory')
      await bus.close()
    }
  })

  const wrong: { what: string; target: unknown; code: string; cure: RegExp }[] = [
    {
      what: 'a URL scheme that no driver has',
      target: 'mysql://localhost',
      code: 'LONGSHORE_UNKNOWN_DRIVER',
      cure: /no driver has the URL scheme 'mysql:'; known are: memory, amqp/,
    },
    {
      what: 'a misspelt URL scheme',
      target: 'memroy://',
      code: 'LONGSHORE_UNKNOWN_DRIVER',
      cure: /did you mean 'memory:'\?/,
    },
    {
      what: 'a URL without a scheme',
      target: 'localhost/orders',
      code: 'LONGSHORE_OPTION',
      cure: /must begin with a scheme, such as memory:\/\/ or amqp:\/\//,
    },
    {
      what: 'an empty URL',
      target: '',
      code: 'LONGSHORE_OPTION',
      cure: /must begin with a scheme/,
    },
    {
      what: 'no URL and no driver',
      target: {},
      code: 'LONGSHORE_OPTION',
      cure: /needs a url or a driver, for instance connect\('memory:\/\/'\)/,
    },
    {
      what: 'nothing at all',
      target: undefined,
      code: 'LONGSHORE_OPTION',
      cure: /takes a URL such as 'memory:\/\/' or a config/,
    },
    { what: 'null', target: null, code: 'LONGSHORE_OPTION', cure: /takes a URL such as/ },
    {
      what: 'a misspelt driver name',
      target: { driver: 'rabitmq' },
      code: 'LONGSHORE_UNKNOWN_DRIVER',
      cure: /did you mean 'rabbitmq'\?.*passed as an object/,
    },
    {
      what: 'a driver name that no driver is near to',
      target: { driver: 'mysterious' },
      code: 'LONGSHORE_UNKNOWN_DRIVER',
      cure: /known are: memory, rabbitmq, nats, kafka, postgres, redis/,
    },
    {
      what: 'a driver name that every object has as a property',
      target: { driver: 'toString' },
      code: 'LONGSHORE_UNKNOWN_DRIVER',
      cure: /there is no driver 'toString'/,
    },
    {
      what: "a URL of another driver's",
      target: { driver: 'memory', url: 'amqp://localhost' },
      code: 'LONGSHORE_OPTION',
      cure: /takes URLs with the scheme memory, not 'amqp'/,
    },
    {
      what: 'an object that is no driver',
      target: { driver: { name: 'x' } },
      code: 'LONGSHORE_OPTION',
      cure: /must have name, schemes, options and connect/,
    },
    {
      what: 'an unknown option',
      target: { url: 'memory://', autocreate: true },
      code: 'LONGSHORE_UNKNOWN_OPTION',
      cure: /there is no option 'autocreate'; did you mean 'autoCreate'\?/,
    },
    {
      what: 'an unknown option of the driver',
      target: { driver: 'memory', options: { retian: 5 } },
      code: 'LONGSHORE_UNKNOWN_OPTION',
      cure: /driver 'memory': there is no option 'retian'; did you mean 'retain'\?/,
    },
    {
      what: 'an unknown option in the URL',
      target: 'memory://?retian=5',
      code: 'LONGSHORE_UNKNOWN_OPTION',
      cure: /did you mean 'retain'\?/,
    },
    {
      what: 'a wrong value in the URL',
      target: 'memory://?retain=many',
      code: 'LONGSHORE_OPTION',
      cure: /retain must be a whole number ≥ 0/,
    },
    {
      what: 'a URL that cannot be read',
      target: 'memory://[',
      code: 'LONGSHORE_OPTION',
      cure: /memory:\/\/\[/,
    },
    {
      what: 'a wrong value of an option of the driver',
      target: { driver: 'memory', options: { partitions: -1 } },
      code: 'LONGSHORE_OPTION',
      cure: /partitions must be a whole number ≥ 0, not -1/,
    },
    {
      what: 'an unknown option of publish',
      target: { url: 'memory://', publish: { bufer: {} } },
      code: 'LONGSHORE_UNKNOWN_OPTION',
      cure: /publish: there is no option 'bufer'; did you mean 'buffer'\?/,
    },
    {
      what: 'an unknown option of publish.buffer',
      target: { url: 'memory://', publish: { buffer: { maxbytes: 1 } } },
      code: 'LONGSHORE_UNKNOWN_OPTION',
      cure: /publish\.buffer: there is no option 'maxbytes'; did you mean 'maxBytes'\?/,
    },
    {
      what: 'an unknown option of consume',
      target: { url: 'memory://', consume: { middlewares: [] } },
      code: 'LONGSHORE_UNKNOWN_OPTION',
      cure: /consume: there is no option 'middlewares'; did you mean 'middleware'\?/,
    },
    {
      what: 'an unknown buffer policy',
      target: { url: 'memory://', publish: { buffer: { policy: 'drop' } } },
      code: 'LONGSHORE_OPTION',
      cure: /it is 'block', 'drop-oldest' or 'drop-newest'/,
    },
    {
      what: 'a buffer of no size',
      target: { url: 'memory://', publish: { buffer: { max: 0 } } },
      code: 'LONGSHORE_OPTION',
      cure: /publish\.buffer\.max must be a whole number ≥ 1, not 0/,
    },
    {
      what: 'a duration that is none',
      target: { url: 'memory://', publish: { deadline: '5 minutes' } },
      code: 'LONGSHORE_OPTION',
      cure: /publish\.deadline is "5 minutes"; give milliseconds .* '5m'/,
    },
    {
      what: 'a negative connect timeout',
      target: { url: 'memory://', connectTimeout: -1 },
      code: 'LONGSHORE_OPTION',
      cure: /connectTimeout is -1/,
    },
    {
      what: 'publish middleware that is no function',
      target: { url: 'memory://', publish: { middleware: ['log'] } },
      code: 'LONGSHORE_OPTION',
      cure: /middleware is an array of functions/,
    },
    {
      what: 'consume middleware that is no function',
      target: { url: 'memory://', consume: { middleware: ['log'] } },
      code: 'LONGSHORE_OPTION',
      cure: /middleware is an array of functions/,
    },
  ]
  for (const { what, target, code, cure } of wrong) {
    it(`refuses ${what}, and names the cure`, async () => {
      const error = await connectTo(target).then(
        (bus) => bus.close().then(() => 'it connected'),
        (thrown) => thrown,
      )
      expect(error).toBeInstanceOf(LongshoreError)
      expect(error).toMatchObject({ code, message: expect.stringMatching(cure) })
    })
  }

  it('checks the options beside a URL as well', async () => {
    await expect(connectTo('memory://', { pulbish: {} })).rejects.toMatchObject({
      code: 'LONGSHORE_UNKNOWN_OPTION',
      message: expect.stringMatching(/did you mean 'publish'\?/),
    })
  })

  for (const [url, name] of [
    ['nats://localhost', 'nats'],
    ['kafka://localhost', 'kafka'],
    ['postgres://localhost', 'postgres'],
    ['redis://localhost', 'redis'],
  ]) {
    it(`says how to install the ${name} driver when it is not installed`, async () => {
      // As in an application that has none of them.
      const cwd = vi.spyOn(process, 'cwd').mockReturnValue(tmpdir())
      const argv = vi.spyOn(process, 'argv', 'get').mockReturnValue([process.execPath])
      try {
        await expect(connectTo(url)).rejects.toMatchObject({
          name: 'DriverNotInstalledError',
          code: 'LONGSHORE_DRIVER_NOT_INSTALLED',
          message: expect.stringContaining(`npm install @longshore/${name}`),
        })
      } finally {
        cwd.mockRestore()
        argv.mockRestore()
      }
    })
  }

  it('gives a driver what it asked for, and closes it when the options are wrong', async () => {
    const calls: unknown[] = []
    const acme: DriverModule<{ token: string }> = {
      name: 'acme',
      schemes: ['acme'],
      options: ['token'],
      async connect(config) {
        calls.push(config.options, config.url, config.autoCreate, config.connectTimeoutMs)
        const driver = await memory.connect({ ...config, url: undefined, options: {} })
        const close = driver.close.bind(driver)
        driver.close = async (ms) => {
          calls.push('closed')
          return close(ms)
        }
        return driver
      },
    }
    const bus = await connect({
      driver: acme,
      url: 'acme://x',
      options: { token: 't' },
      autoCreate: false,
      connectTimeout: '3s',
    })
    expect(calls).toEqual([{ token: 't' }, 'acme://x', false, 3000])
    await bus.close()
    const bad = connect({ driver: acme, publish: { buffer: { max: -1 } } })
    await expect(bad).rejects.toMatchObject({ code: 'LONGSHORE_OPTION' })
    expect(calls.slice(-1)).toEqual(['closed'])
  })

  it('wraps what a driver throws while it connects, at once or later, and keeps the cause', async () => {
    const cause = new Error('ECONNREFUSED')
    for (const fail of [
      () => Promise.reject(cause),
      () => {
        throw cause
      },
    ]) {
      const driver: DriverModule = { ...memory, connect: fail }
      await expect(connect({ driver })).rejects.toMatchObject({
        name: 'DriverError',
        code: 'LONGSHORE_DRIVER',
        message: 'connecting to memory: ECONNREFUSED',
        cause,
      })
    }
  })

  it('gives up at connectTimeout while the broker is down, and connects when it comes up in time', async () => {
    const shared = { name: 'down-at-start' }
    await using first = await createTestBus({ memory: shared })
    const { clock } = first
    first.native().broker.stop()
    const late = connect({ driver: 'memory', options: shared, clock, connectTimeout: '2s' })
    late.catch(() => {})
    await clock.advance(2000)
    await expect(late).rejects.toMatchObject({
      code: 'LONGSHORE_CONNECTION',
      message: expect.stringMatching(/did not start within 2000 ms/),
    })
    const early = connect({ driver: 'memory', options: shared, clock, connectTimeout: '2s' })
    await clock.advance(1000)
    first.native().broker.start()
    await (await early).close()
  })

  it('gives up connecting when its signal aborts, and closes a connection that comes too late', async () => {
    const shared = { name: 'aborted-connect' }
    await using first = await createTestBus({ memory: shared })
    const { broker } = first.native()
    broker.stop()
    const abort = new AbortController()
    const connecting = connect({
      driver: 'memory',
      options: shared,
      clock: first.clock,
      signal: abort.signal,
    })
    abort.abort(new Error('enough'))
    await expect(connecting).rejects.toMatchObject({
      code: 'LONGSHORE_CONNECTION',
      message: expect.stringMatching(/aborted/),
      cause: { message: 'enough' },
    })
    broker.start()
    await first.advance(0)
    expect(broker.connections.size).toBe(1)
    await expect(connect('memory://', { signal: AbortSignal.abort() })).rejects.toMatchObject({
      code: 'LONGSHORE_CONNECTION',
    })
  })

  it('tells the state of the connection in health', async () => {
    await using bus = await createTestBus()
    expect(bus.health()).toMatchObject({
      status: 'up',
      driver: 'memory',
      server: 'memory',
      connection: { state: 'up' },
      outgoing: { messages: 0, bytes: 0, saturated: false },
      subscriptions: [],
    })
    bus.native().broker.stop()
    expect(bus.health()).toMatchObject({
      status: 'down',
      connection: { state: 'down', detail: 'the broker stopped' },
    })
    bus.native().broker.start()
    expect(bus.health().status).toBe('up')
  })

  it('shows a blocked broker as degraded', async () => {
    let tell: ((status: { state: 'up' | 'blocked'; detail?: string }) => void) | undefined
    const driver: DriverModule = {
      ...memory,
      connect: (config) => {
        tell = config.onStatus
        return memory.connect(config)
      },
    }
    const bus = await connect({ driver, clock: new VirtualClock() })
    tell?.({ state: 'blocked', detail: 'disk alarm' })
    expect(bus.health()).toMatchObject({ status: 'degraded', connection: { detail: 'disk alarm' } })
    tell?.({ state: 'up' })
    expect(bus.health().status).toBe('up')
    await bus.close()
  })
})
