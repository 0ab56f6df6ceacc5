import { type Bus, PermanentError, topic } from '@longshore/core'

export interface Order {
  readonly id: string
  readonly total: number
}

export const OrderPlaced = topic<Order>('orders.placed')
export const OrderCharged = topic<{ id: string }>('orders.charged')

export type Charge = (order: Order) => Promise<'charged' | 'declined'>

/** What the service runs, and what the test runs on a bus of its own. */
export function startBilling(bus: Bus, charge: Charge) {
  return bus.subscribe(OrderPlaced, { group: 'billing' }, async (order, context) => {
    if ((await charge(order)) === 'declined') throw new PermanentError('the card was declined')
    await context.publish(OrderCharged, { id: order.id })
  })
}
