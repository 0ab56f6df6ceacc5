import type { SubscriptionSpec } from './driver.js'

/** Optional ability of a driver: create, delete and count. */
export interface Admin {
  createTopic(topic: string): Promise<void>
  createGroup(topic: string, group: string, options: GroupOptions): Promise<void>
  /** Messages that wait in it are lost: the caller asked for it. */
  deleteTopic(topic: string): Promise<void>
  deleteGroup(topic: string, group: string): Promise<void>
  stats(topic: string, group: string): Promise<GroupStats>
}

/** What belongs to a group from when it is made. */
export interface GroupOptions extends Pick<SubscriptionSpec, 'order' | 'from'> {
  readonly routes?: SubscriptionSpec['routes']
}

/** How many messages a group has in each state. Undefined: this broker can't tell. */
export interface GroupStats {
  readonly ready: number
  /** Retries that wait for their time. */
  readonly delayed: number | undefined
  /** Delivered and not settled. */
  readonly inFlight: number | undefined
  readonly dead: number
}
