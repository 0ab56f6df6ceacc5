/** What is measured on every real broker. Both sides get the same settings; the scenarios don't know the broker. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Settings } from '../session.js'
import { heapBehindBacklog } from './backlog.js'
import { flow } from './flow.js'
import { latency, type Pace } from './latency.js'
import { fillAndDrain } from './publish.js'
import type { Scenario } from './scenario.js'
import { batchSize, inBatches, oneByOne, window } from './send.js'

const unordered = { kind: 'binary', concurrency: 64, prefetch: 128, order: 'none' } as const
const ordered = { ...unordered, order: 'key' } as const
const slow: Settings<'text'> = { kind: 'text', concurrency: 16, prefetch: 32, order: 'none' }
const keys = 64

const rate = (name: string) => ({ name, unit: 'messages/s' })

function throughput(bytes: number, size: string): readonly Scenario[] {
  const single = `publish one by one, ${window} under way, ${size}`
  const batches = `publish batches of ${batchSize}, ${size}`
  const consume = `consume with ack, ${size}`
  const endToEnd = `end-to-end, ${size}`
  const inOrder = `end-to-end, ${keys} keys in order, ${size}`
  const settings = { ...unordered, bytes, window }
  return [
    {
      name: single,
      metrics: [rate(single)],
      settings,
      run: (target, load) => fillAndDrain(target, unordered, load, oneByOne, bytes),
    },
    {
      // The batches are the backlog that is consumed then.
      name: `${batches}; ${consume}`,
      metrics: [rate(batches), rate(consume)],
      settings: { ...unordered, bytes, batchSize },
      run: (target, load) => fillAndDrain(target, unordered, load, inBatches, bytes),
    },
    {
      name: endToEnd,
      metrics: [rate(endToEnd)],
      settings,
      run: async (target, load) => [await flow(target, unordered, load, bytes)],
    },
    {
      name: inOrder,
      metrics: [rate(inOrder)],
      settings: { ...settings, order: 'key', keys },
      run: async (target, load) => [await flow(target, ordered, load, bytes, keys)],
    },
  ]
}

// The timer leaves the processor to the broker meanwhile.
const pace: Pace = { perSecond: 500, seconds: 3, bytes: 256, wait: () => sleep(1) }

const atFixedRate: Scenario = {
  name: `latency, 256 B`,
  metrics: [
    { name: `latency p50 at ${pace.perSecond}/s, 256 B`, unit: 'ms' },
    { name: `latency p99 at ${pace.perSecond}/s, 256 B`, unit: 'ms' },
  ],
  settings: { ...unordered, bytes: 256, perSecond: pace.perSecond },
  run: (target, load) => latency(target, unordered, pace, load),
}

const memoryPeak: Scenario = {
  name: 'slow consumer',
  metrics: [{ name: 'peak heap, slow consumer behind 10,000 × 256 B', unit: 'MB' }],
  settings: { ...slow, bytes: 256 },
  async run(target, load) {
    const [backlog, growth] = await heapBehindBacklog(target, slow, load, 1)
    return [backlog + growth]
  },
}

export const brokerScenarios: readonly Scenario[] = [
  ...throughput(256, '256 B'),
  ...throughput(4096, '4 KiB'),
  atFixedRate,
  memoryPeak,
]
