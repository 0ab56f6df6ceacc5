import type { SubscriptionSpec } from './driver.js'

/** Optional ability of a driver: create, delete and count. */
export interface Admin {
  createTopic(topic: string): Promise<void>
  createGroup(
    topic: string,
    group: string,
    options: Pick<SubscriptionSpec, 'order' | 'from'>,
  ): Promise<void>
  /** Messages that wait in it are lost: the caller asked for it. */
  deleteTopic(topic: string): Promise<void>
  deleteGroup(topic: string, group: string): Promise<void>
  stats(topic: string, group: string): Promise<GroupStats>
}

/** How many messages a group has in each state. */
export interface GroupStats {
  readonly ready: number
  readonly delayed: number
  readonly inFlight: number
  readonly dead: number
}
