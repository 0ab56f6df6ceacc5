/** What is measured on real brokers, here in memory. */
import { afterEach, expect, it, vi } from 'vitest'
import { longshore } from './longshore.js'
import { main } from './main.js'
import { makerOf } from './payloads.js'
import { memory } from './raw/memory.js'
import { workersOf } from './raw/workers.js'
import { measure } from './rounds.js'
import { choose } from './scenarios/choose.js'
import { KeyOrder } from './scenarios/flow.js'
import { brokerScenarios } from './scenarios/index.js'
import type { Kind, Payloads, Session, Settings, Target } from './session.js'

const plan = { raw: memory, rounds: 1, messages: 3000, progress: () => {} }
const throughput = brokerScenarios.filter(({ metrics }) => metrics[0]!.unit === 'messages/s')
const [inOrder] = choose(brokerScenarios, ['keys in order, 256 B'])

afterEach(() => {
  vi.restoreAllMocks()
})

it('measures the same with bodies of 256 B and of 4 KiB', () => {
  const metrics = throughput.flatMap((scenario) => scenario.metrics.map(({ name }) => name))
  const small = metrics.filter((name) => name.includes('256 B'))
  expect(small).toHaveLength(5)
  expect(metrics.filter((name) => name.includes('4 KiB'))).toEqual(
    small.map((name) => name.replace('256 B', '4 KiB')),
  )
})

it('runs every throughput scenario through both targets, and tells their settings', async () => {
  for (const scenario of throughput) {
    const results = await measure(scenario, { ...plan, longshore: longshore('memory://') })
    expect(results).toHaveLength(scenario.metrics.length)
    for (const { longshore, raw, settings } of results) {
      expect(longshore).toBeGreaterThan(0)
      expect(raw).toBeGreaterThan(0)
      expect(settings).toMatchObject({ concurrency: 64, prefetch: 128 })
    }
  }
})

it('has bodies of exactly the size asked for', () => {
  for (const bytes of [256, 4096]) {
    for (const kind of ['text', 'binary'] as const) {
      const { make, read } = makerOf(kind, bytes)
      expect(make(70_000)).toHaveLength(bytes)
      expect((read as (payload: unknown) => number)(make(70_000))).toBe(70_000)
    }
  }
})

it('fails when messages of one key come in another order', async () => {
  const hasty: Target = {
    name: 'hasty',
    async open<K extends Kind>(settings: Settings<K>) {
      const session: Session<Payloads[K]> = await memory.open(settings)
      const publish = session.publish.bind(session)
      let held: Payloads[K] | undefined
      session.publish = async (payload, key) => {
        if (key !== 'k3') return publish(payload, key)
        if (held === undefined) held = payload
        else {
          await publish(payload, key)
          await publish(held, key)
          held = undefined
        }
      }
      return session
    },
  }
  // 8,192: as many of each key, an even number.
  const swapped = measure(inOrder!, { ...plan, messages: 8192, longshore: hasty })
  await expect(swapped).rejects.toThrow('came out of the order of their keys')
})

it('counts each message out of order', () => {
  const order = new KeyOrder(2)
  for (const number of [0, 2, 1, 3, 4, 5]) order.see(number)
  expect(order.violations).toBe(0)
  order.see(8)
  expect(order.violations).toBe(1)
})

it('closes the session of a measurement that failed', async () => {
  const close = vi.fn(async () => {})
  const broken: Target = {
    name: 'broken',
    async open<K extends Kind>(settings: Settings<K>) {
      const session: Session<Payloads[K]> = await memory.open(settings)
      session.publish = () => Promise.reject(new Error('refused'))
      session.close = close
      return session
    },
  }
  await expect(measure(inOrder!, { ...plan, longshore: broken })).rejects.toThrow('refused')
  expect(close).toHaveBeenCalledOnce()
})

it('runs so many handlers at once, or one for each key', async () => {
  for (const [order, most] of [
    ['none', 2],
    ['key', 3],
  ] as const) {
    let [running, peak] = [0, 0]
    const handled: string[] = []
    const add = workersOf<string>({ kind: 'text', concurrency: 2, order }, async (item) => {
      peak = Math.max(peak, ++running)
      await new Promise((resolve) => setImmediate(resolve))
      handled.push(item)
      running--
    })
    for (const item of ['a1', 'a2', 'b1', 'a3', 'c1', 'b2']) add(item, item[0]!)
    await vi.waitFor(() => expect(handled).toHaveLength(6))
    expect(peak).toBe(most)
    const ofA = handled.filter((item) => item.startsWith('a'))
    if (order === 'key') expect(ofA).toEqual(['a1', 'a2', 'a3'])
  }
})

it('chooses scenarios by name, part of a name, or metric', () => {
  const names = (...texts: string[]) => choose(brokerScenarios, texts).map(({ name }) => name)
  expect(names('slow consumer', 'p99')).toEqual(['latency, 256 B', 'slow consumer'])
  expect(names('end-to-end, 256 B')).toEqual(['end-to-end, 256 B'])
  expect(names()).toHaveLength(brokerScenarios.length)
  expect(() => names('nothing of that name')).toThrow('no scenario has that in its name')
})

it('says when the broker can not be had, and asks for none when the arguments are wrong', async () => {
  const errors = vi.spyOn(console, 'error').mockImplementation(() => {})
  const bringUp = vi.fn(() => Promise.reject(new Error('no server here')))
  expect(await main(['--driver', 'rabbitmq@next'], bringUp)).toBe(3)
  expect(bringUp).toHaveBeenCalledExactlyOnceWith('rabbitmq@next')
  expect(errors).toHaveBeenLastCalledWith("the broker 'rabbitmq@next' can't be had: no server here")
  expect(await main(['--driver', 'rabbitmq', '--scenario', 'none such'], bringUp)).toBe(2)
  expect(await main(['--driver', 'rabbit'], bringUp)).toBe(2)
  expect(bringUp).toHaveBeenCalledOnce()
})
