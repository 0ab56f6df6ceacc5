/** An open per-key circuit: the key's messages go to the dead letters until it closes. */
export interface Circuit {
  readonly key: string
  readonly reason: string
  /** Milliseconds since it opened, by the store's clock. */
  readonly ageMs: number
}

/** Where the circuits of `onKeyFailure: 'park'` are kept, shared by all members of a group. */
export interface CircuitStore {
  list(topic: string, group: string): Promise<readonly Circuit[]>
  /** Opens the key's circuit, or opens it anew (its age begins at 0). Durable when it resolves. */
  open(topic: string, group: string, key: string, reason: string): Promise<void>
  /** Resolves to false if it was not open. */
  close(topic: string, group: string, key: string): Promise<boolean>
  /** Tells of every change, also by other members; returns how to stop. */
  watch(
    topic: string,
    group: string,
    onChange: (key: string, circuit: Circuit | undefined) => void,
  ): () => void
}
