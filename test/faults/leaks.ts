import { until } from '@longshore/conformance'
import type { FaultTarget } from './target.js'

/** Milliseconds that a broker may need to notice that clients have gone. */
const patienceMs = 15_000

/** Whether anything is left open after a cell. */
export class Leaks {
  private constructor(
    private readonly target: FaultTarget,
    private readonly patience: number,
    private readonly handles: Readonly<Record<string, number>>,
  ) {}

  static before(target: FaultTarget, patience = patienceMs): Leaks {
    return new Leaks(target, patience, openHandles())
  }

  /** What is still open at the process or the broker, if so. */
  async after(): Promise<string | undefined> {
    try {
      await until(() => this.#left().length === 0, {
        what: () => `handles to go: ${this.#left().join(', ')}`,
        deadline: this.patience,
      })
      let open = 0
      await until(
        async () => {
          open = (await this.target.countConnections?.()) ?? 0
          return open === 0
        },
        { what: () => `the broker's ${open} connections to end`, deadline: this.patience },
      )
      return undefined
    } catch (error) {
      return (error as Error).message
    }
  }

  #left(): string[] {
    return Object.entries(openHandles()).flatMap(([kind, count]) => {
      const more = count - (this.handles[kind] ?? 0)
      return more > 0 ? [`${more} × ${kind}`] : []
    })
  }
}

/** Timers come and go with the test runner itself. */
function openHandles(): Record<string, number> {
  const kinds: Record<string, number> = {}
  for (const kind of process.getActiveResourcesInfo()) {
    if (kind !== 'Timeout' && kind !== 'Immediate') kinds[kind] = (kinds[kind] ?? 0) + 1
  }
  return kinds
}
