import { noHeaders, type WireMessage } from '@longshore/core/driver'
import type { ConsumeMessage, Options } from 'amqplib'
import { expect, test } from 'vitest'
import type { Intake } from './intake.js'
import { Unseen } from './unseen.js'
import { Delivery, deadCopy, messageOf, propertiesOf, redrivenCopy, retryCopy } from './wire.js'

const message: WireMessage = {
  id: 'id-1',
  topic: 't',
  key: 'k',
  body: Buffer.from('body'),
  headers: Object.freeze({ tenant: 'acme', CC: 'copy', 'x-death': 'mine', 'X-Case': '' }),
  contentType: 'text/plain',
  timestamp: 1_700_000_000_123,
  correlationId: 'c',
  causationId: 'p',
}

/** As the broker hands over what was published with these properties. */
function received(properties: Options.Publish, more: Record<string, unknown> = {}): ConsumeMessage {
  return {
    fields: { deliveryTag: 7, exchange: '', routingKey: '', redelivered: false, consumerTag: '' },
    properties: { ...properties, headers: { ...properties.headers, ...more } },
    content: Buffer.from('body'),
  } as ConsumeMessage
}

const intake = { unseen: new Unseen() } as Intake

const failure = {
  reason: 'exhausted',
  errorName: 'Error',
  errorMessage: 'no',
  errorStack: 'Error: no\n  at x',
  attempts: 3,
  topic: 't',
  group: 'g',
  firstFailedAt: 1,
  lastFailedAt: 2,
} as const

test('a message survives, with headers that mean something to RabbitMQ', () => {
  const properties = propertiesOf(message)
  expect(properties.headers).not.toHaveProperty('CC')
  expect(properties.headers).not.toHaveProperty('x-death')
  expect(messageOf('t', received(properties))).toEqual(message)
})

test('what the broker adds is not shown', () => {
  const back = messageOf(
    't',
    received(propertiesOf({ ...message, headers: noHeaders }), {
      'x-death': [{ queue: 'q' }],
      'x-first-death-queue': 'q',
      'x-delivery-count': 3,
    }),
  )
  expect(back.headers).toBe(noHeaders)
})

test('a foreign message gets defaults, and its headers as text', () => {
  const back = messageOf('t', {
    fields: { deliveryTag: 1 },
    properties: {
      timestamp: 1_700_000_000,
      headers: { n: 5, yes: true, list: [1, 'a'], bytes: Buffer.from('raw') },
    },
    content: Buffer.alloc(0),
  } as unknown as ConsumeMessage)
  expect(back).toMatchObject({
    key: undefined,
    contentType: 'application/octet-stream',
    timestamp: 1_700_000_000_000,
    headers: { n: '5', yes: 'true', list: '[1,"a"]', bytes: 'raw' },
  })
  expect(back.id.length).toBeGreaterThan(10)
})

test('a retry carries its attempt, and is otherwise the same', () => {
  const first = new Delivery(
    't',
    intake,
    received(propertiesOf(message), { 'x-delivery-count': 2 }),
  )
  expect(first).toMatchObject({ attempt: 1, deliveries: 3, firstFailedAt: undefined, tag: 7 })
  const copy = retryCopy(first, 2, 1234)
  expect(copy.headers).not.toHaveProperty('x-delivery-count')
  const second = new Delivery('t', intake, received(copy))
  expect(second).toMatchObject({ attempt: 2, deliveries: 1, firstFailedAt: 1234 })
  expect(second.message).toEqual(message)
})

test('deliveries that the core did not see count nothing', () => {
  const again = received(propertiesOf(message), { 'x-delivery-count': 3 })
  const [unseen, seen] = [new Delivery('t', intake, again), new Delivery('t', intake, again)]
  seen.seen = true
  intake.unseen.add([unseen, seen, unseen])
  expect(new Delivery('t', intake, again).deliveries).toBe(2)
  // The next attempt is another message to the broker.
  const retried = received(retryCopy(seen, 2, 1234), { 'x-delivery-count': 3 })
  expect(new Delivery('t', intake, retried).deliveries).toBe(4)
})

test('a foreign message keeps its id and its typed headers through a retry', () => {
  const foreign = received({ headers: { n: 5 }, appId: 'legacy', expiration: '100' })
  const first = new Delivery('t', intake, foreign)
  const copy = retryCopy(first, 2, 1)
  expect(copy).toMatchObject({ messageId: first.message.id, appId: 'legacy', headers: { n: 5 } })
  expect(copy.expiration).toBeUndefined()
})

test('a dead letter is whole, and comes back as if for the first time', () => {
  const first = new Delivery(
    't',
    intake,
    received(retryCopy(new Delivery('t', intake, received(propertiesOf(message))), 3, 5)),
  )
  const dead = received(deadCopy(first, failure))
  expect(messageOf('t', dead)).toEqual(message)
  const again = new Delivery('t', intake, received(redrivenCopy(dead)))
  expect(again).toMatchObject({ attempt: 1, firstFailedAt: undefined })
  expect(again.message).toEqual(message)
  expect(Object.keys(again.raw.properties.headers ?? {}).join()).not.toContain('longshore-dl')
})
