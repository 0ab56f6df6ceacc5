import { setTimeout as sleep } from 'node:timers/promises'
import { connect, topic } from '@longshore/core'
import { z } from 'zod'

const OrderPlaced = topic('orders.placed', {
  schema: z.object({ id: z.string(), customerId: z.string(), total: z.number() }),
  key: (order) => order.customerId,
})

await using bus = await connect('memory://')

await bus.subscribe(
  OrderPlaced,
  { group: 'billing', concurrency: 20, order: 'key', retry: { base: '100ms' } },
  async (order, { attempt }) => {
    if (order.total > 1000 && attempt === 1) throw new Error('the bank did not answer')
    console.log(
      `charged ${order.customerId} ${order.total} for order ${order.id}, attempt ${attempt}`,
    )
  },
)

await bus.publish(OrderPlaced, { id: '1', customerId: 'ada', total: 99 })
await bus.publish(OrderPlaced, { id: '2', customerId: 'bob', total: 2500 })
await bus.publish(OrderPlaced, { id: '3', customerId: 'ada', total: 12 }, { delay: '500ms' })

await sleep(1000) // a service would just go on
