import { beforeAll, describe, expect, test } from 'vitest'
import type { BrokerInfo } from '../../../scripts/brokers/index.mjs'
import { broker } from '../../../test/brokers/support.js'
import { measure, type Plan } from '../rounds.js'
import { brokerScenarios } from '../scenarios/index.js'
import { rabbitmq } from './rabbitmq.js'

describe.each(['rabbitmq', 'rabbitmq@next'])('amqplib on %s', (name) => {
  let info: BrokerInfo | undefined

  beforeAll(async () => {
    info = await broker(name)
  }, 300_000)

  test('goes through every throughput scenario, and acks all', async (context) => {
    if (!info) return context.skip(`${name} is not there`)
    const raw = rabbitmq(info.url)
    const plan: Plan = { raw, longshore: raw, rounds: 1, messages: 600, progress: () => {} }
    for (const scenario of brokerScenarios) {
      if (scenario.metrics[0]!.unit !== 'messages/s') continue
      for (const { ratio } of await measure(scenario, plan)) expect(ratio).toBeGreaterThan(0)
    }
  })

  test('carries every kind of payload', async (context) => {
    if (!info) return context.skip(`${name} is not there`)
    const settings = { concurrency: 2, order: 'none' } as const
    const order = { seq: 1, customer: 'ada', total: 3 }
    const target = rabbitmq(info.url)
    for (const [kind, payload] of [
      ['text', 'häuser'],
      ['binary', Buffer.from('abc')],
      ['json', order],
    ] as const) {
      const session = await target.open({ kind, ...settings })
      const received = new Promise((resolve) => {
        void session.consume(async (each) => resolve(each))
      })
      await session.publish(payload as never)
      expect(await received).toEqual(payload)
      await session.close()
    }
  })

  test('tells of messages that were not acked', async (context) => {
    if (!info) return context.skip(`${name} is not there`)
    const settings = { kind: 'text', concurrency: 1, order: 'none' } as const
    const session = await rabbitmq(info.url).open(settings)
    await session.consume(() => new Promise(() => {}))
    await session.publishBatch([{ payload: 'one' }, { payload: 'two' }])
    await expect(session.close()).rejects.toThrow('2 messages were not acked')
  })
})
