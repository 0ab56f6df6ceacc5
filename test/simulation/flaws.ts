import type {
  Driver,
  DriverSubscription,
  IncomingDelivery,
  OutgoingMessage,
  PublishFailure,
  Sink,
  SubscriptionSpec,
} from '@longshore/core/driver'
import type { MemoryDriver } from '../../packages/core/src/memory/driver.js'
import type { MemoryGroup } from '../../packages/core/src/memory/group.js'

/** A mistake, put between the memory driver and what observes it: the simulation must notice it. */
export interface Flaw {
  /** Rules that may be named; the first violation must be one of these. */
  readonly caughtBy: readonly string[]
  subscribe?(inner: Driver, spec: SubscriptionSpec, sink: Sink): Promise<DriverSubscription>
  /** True if it took care of the message. */
  publish?(
    outgoing: OutgoingMessage,
    inner: Driver,
    settle: (failure?: PublishFailure) => void,
  ): boolean
  crashing?(inner: MemoryDriver): void
  /** Instead of telling the store that a circuit is open. */
  readonly forgetsCircuits?: boolean
  /** Called before each redrive. */
  redriving?(group: MemoryGroup): void
  /** The handler's side is wrong: acks before it has run. */
  readonly acksFirst?: boolean
}

/** A flaw of a subscription: what it does otherwise than the memory driver. */
function broken(
  change: (inner: DriverSubscription, sink: Sink) => Partial<DriverSubscription>,
  deliver?: (batch: readonly IncomingDelivery[], sink: Sink, inner: DriverSubscription) => void,
): NonNullable<Flaw['subscribe']> {
  return async (driver, spec, sink) => {
    const early: IncomingDelivery[][] = []
    let inner: DriverSubscription | undefined
    inner = await driver.subscribe(spec, {
      deliver(batch) {
        if (inner === undefined) early.push([...batch])
        else if (deliver) deliver(batch, sink, inner)
        else sink.deliver(batch)
      },
      revoke: (deliveries, reason) => sink.revoke(deliveries, reason),
      fail: (error) => sink.fail(error),
    })
    const subscription = inner
    const changed = change(inner, sink)
    for (const batch of early) {
      if (deliver) deliver(batch, sink, inner)
      else sink.deliver(batch)
    }
    return {
      ack: (delivery) => subscription.ack(delivery),
      retry: (delivery, request) => subscription.retry(delivery, request),
      deadLetter: (delivery, failure) => subscription.deadLetter(delivery, failure),
      release: (deliveries) => subscription.release(deliveries),
      heartbeat: () => subscription.heartbeat(),
      pause: () => subscription.pause(),
      resume: () => subscription.resume(),
      stop: () => subscription.stop(),
      close: () => subscription.close(),
      ...changed,
    }
  }
}

const passesRetries = broken((inner) => ({
  retry: (delivery, request) => inner.retry(delivery, { ...request, hold: false }),
}))

export const flaws = {
  'acks on delivery': {
    caughtBy: ['lost', 'settle-once'],
    subscribe: broken(
      () => ({ ack: () => true }),
      (batch, sink, inner) => {
        for (const delivery of batch) void inner.ack(delivery)
        sink.deliver(batch)
      },
    ),
  },
  'loses what a crashed member held': {
    caughtBy: ['lost'],
    crashing(inner) {
      for (const member of inner.members) for (const d of [...member.held]) member.ack(d)
    },
  },
  'loses what is handed back': {
    caughtBy: ['lost'],
    subscribe: broken((inner) => ({
      release: (deliveries) => deliveries.forEach((each) => void inner.ack(each)),
    })),
  },
  'ignores the order of keys': {
    caughtBy: ['order', 'overlap', 'park', 'redrive-order'],
    subscribe: (inner, spec, sink) => passesRetries(inner, { ...spec, order: 'none' }, sink),
  },
  'lets the next of a key pass a retry': {
    caughtBy: ['order', 'redrive-order'],
    subscribe: passesRetries,
  },
  'does not count attempts': {
    caughtBy: ['attempt'],
    subscribe: broken((inner) => ({
      retry: (delivery, request) => inner.retry(delivery, { ...request, attempt: 1 }),
    })),
  },
  'loses dead letters': {
    caughtBy: ['lost'],
    subscribe: broken((inner) => ({ deadLetter: (delivery) => inner.ack(delivery) })),
  },
  'hands one message to two members': {
    caughtBy: ['double-delivery'],
    subscribe: broken(
      () => ({}),
      (batch, sink, inner) => {
        sink.deliver(batch)
        const [first] = batch
        const { group } = inner as unknown as {
          group: { add(message: unknown, priority: number, expiresAt: number): void }
        }
        if (first && first.deliveries === 1 && Number(first.message.headers.n) % 5 === 0) {
          group.add(first.message, 0, Number.POSITIVE_INFINITY)
        }
      },
    ),
  },
  'retries too early': {
    caughtBy: ['early'],
    subscribe: broken((inner) => ({
      retry: (delivery, request) =>
        inner.retry(delivery, { ...request, delayMs: request.delayMs / 2 }),
    })),
  },
  'delivers delayed messages too early': {
    caughtBy: ['early'],
    publish(outgoing, inner, settle) {
      inner.publish([{ ...outgoing, delayMs: outgoing.delayMs / 2 }], (_, failure) =>
        settle(failure),
      )
      return true
    },
  },
  'confirms what it did not store': {
    caughtBy: ['lost'],
    publish(outgoing, _, settle) {
      if (Number(outgoing.message.headers.n) % 10 !== 7) return false
      settle()
      return true
    },
  },
  'stores what it refused': {
    caughtBy: ['failed-but-stored'],
    publish(outgoing, inner, settle) {
      if (Number(outgoing.message.headers.n) % 10 !== 7) return false
      inner.publish([outgoing], () => settle({ outcome: 'rejected', error: new Error('refused') }))
      return true
    },
  },
  'gives repeats a new id': {
    caughtBy: ['id', 'intact'],
    publish(outgoing, inner, settle) {
      const { message } = outgoing
      const id = `${message.id}-${Math.floor(message.timestamp)}`
      inner.publish([outgoing], (_, failure) => settle(failure))
      if (Number(message.headers.n) % 10 === 7) {
        inner.publish([{ ...outgoing, message: { ...message, id } }], () => {})
      }
      return true
    },
  },
  'forgets a header': {
    caughtBy: ['intact'],
    subscribe: broken(
      () => ({}),
      (batch, sink) => {
        for (const delivery of batch) {
          const { message } = delivery
          Object.assign(delivery, { message: { ...message, headers: { n: message.headers.n! } } })
        }
        sink.deliver(batch)
      },
    ),
  },
  'sends more than was asked for': {
    caughtBy: ['window'],
    subscribe: (inner, spec, sink) => inner.subscribe({ ...spec, window: spec.window + 3 }, sink),
  },
  'forgets that a circuit is open': {
    caughtBy: ['park'],
    forgetsCircuits: true,
  },
  'redrives the last first': {
    caughtBy: ['redrive-order'],
    redriving(group) {
      for (const { message } of group.takeDead({}).reverse()) group.add(message, 0, Infinity)
    },
  },
  'a consumer that acks first': {
    caughtBy: ['ack-early'],
    acksFirst: true,
  },
} as const satisfies Record<string, Flaw>

export type FlawName = keyof typeof flaws
