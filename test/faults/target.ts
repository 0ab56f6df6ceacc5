import type { ConformanceTarget, Repair } from '@longshore/conformance'

/** What the fault matrix may do to a broker beyond what the kit's checks do. */
export interface FaultHooks {
  /** Ends the broker like a crash (SIGKILL) and starts it again; resolves when it answers. */
  crashBroker?(): Promise<void>
  /** The broker raises the alarm that stops publishers, until it is repaired. */
  exhaustMemory?(): Promise<Repair>
  /** Connections of the target's clients that the broker has open; none when all are closed. */
  countConnections?(): Promise<number>
}

export type FaultTarget = ConformanceTarget & FaultHooks
