import type { Bus, Consumption, Subscription } from '@longshore/core'
import type { Connection } from './connection.js'
import type { Payload, Workload } from './handlers.js'
import type { GroupPlan } from './plan.js'

/** A member of a group: a process of its own, with one subscription. */
export interface Consuming {
  readonly connection: Connection
  readonly group: GroupPlan
  readonly bus: Bus
  readonly subscription: Subscription | undefined
  readonly loop: Consumption<Payload> | undefined
  paused: boolean
}

/** Subscribes in the way that the plan says. `failed` is told when a loop ends with an error. */
export async function consume(
  bus: Bus,
  plan: GroupPlan,
  workload: Workload,
  connection: Connection,
  failed: (error: unknown) => void,
): Promise<Consuming> {
  const { attempts, base, factor, max, jitter, immediate, maxDeliveries } = plan
  const options = {
    group: plan.name,
    concurrency: plan.concurrency,
    order: plan.order,
    from: plan.from,
    retry: { attempts, base, factor, max, jitter, immediate, maxDeliveries },
    deadLetter: { maxStack: 0 },
    lease: plan.lease,
    middleware: [workload.watch],
    ...(plan.order === 'key' ? { onKeyFailure: plan.onKeyFailure } : {}),
    ...(plan.coolDown === undefined ? {} : { park: { coolDown: plan.coolDown } }),
    ...(plan.prefetch === undefined ? {} : { prefetch: plan.prefetch }),
    ...(plan.timeout === undefined ? {} : { timeout: plan.timeout }),
    ...(plan.killSwitch
      ? { killSwitch: { failureRate: 0.4, minimum: 5, window: 1000, pause: 200 } }
      : {}),
  }
  const its = { connection, group: plan, bus, paused: false }
  if (plan.mode === 'single') {
    const subscription = await bus.subscribe<Payload>(plan.topic, options, workload.handle)
    return { ...its, subscription, loop: undefined }
  }
  if (plan.mode === 'batch') {
    const { batchSize, batchWait } = plan
    const batching = { ...options, batchSize, batchWait }
    const subscription = await bus.subscribeBatch<Payload>(
      plan.topic,
      batching,
      workload.handleBatch,
    )
    return { ...its, subscription, loop: undefined }
  }
  const loop = bus.consume<Payload>(plan.topic, options)
  const work = async () => {
    for await (const delivery of loop) void workload.take(delivery)
  }
  work().catch(failed)
  return { ...its, subscription: undefined, loop }
}
