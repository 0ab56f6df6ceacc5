import { createTestBus } from '@longshore/core/testing'
import { expect, it } from 'vitest'
import { OrderCharged, OrderPlaced, startBilling } from './billing.js'

const order = { id: '42', total: 99 }

it('charges an order and says so', async () => {
  await using bus = await createTestBus()
  await startBilling(bus, async () => 'charged')
  await bus.subscribe(OrderCharged, { group: 'test' }, () => {})

  await bus.publish(OrderPlaced, order)

  const [charged] = await bus.handled({ topic: OrderCharged })
  expect(charged?.message.causationId).toBeDefined()
})

it('tries again when the bank does not answer, later, and without waiting for it', async () => {
  await using bus = await createTestBus()
  let calls = 0
  await startBilling(bus, async () => {
    if (++calls < 3) throw new Error('the bank did not answer')
    return 'charged'
  })

  await bus.publish(OrderPlaced, order)

  const [handled] = await bus.handled({ group: 'billing' })
  expect(handled?.attempt).toBe(3)
  expect(await bus.retried({ count: 2 })).toMatchObject([{ delayMs: 1000 }, { delayMs: 2000 }])
})

it('dead-letters an order whose card is declined, at the first attempt', async () => {
  await using bus = await createTestBus()
  await startBilling(bus, async () => 'declined')

  const { id } = await bus.publish(OrderPlaced, order)

  await bus.deadLettered({ id })
  const letter = await bus.deadLetters(OrderPlaced, 'billing').get(id)
  expect(letter?.failure).toMatchObject({ reason: 'permanent', attempts: 1 })
})
