import { rmSync } from 'node:fs'
import { test } from 'vitest'
import * as brokers from '../../../../scripts/brokers/index.mjs'
import { brokerDir } from '../../../../scripts/brokers/paths.mjs'
import { broker } from '../../../brokers/support.js'
import type { FaultTarget } from '../../../faults/target.js'

/**
 * A target whose broker belongs to this test file alone, so that restarting it disturbs nobody. Its `close` ends the broker
 * and deletes its data. Undefined, with a skipped test that says why, where the broker can't be had.
 */
export async function apart(
  name: string,
  purpose: string,
  make: (name: string, from: typeof brokers) => Promise<FaultTarget>,
): Promise<FaultTarget | undefined> {
  const [before] = await brokers.status([name])
  const own = before?.source === 'env'
  if (!own) brokers.setApart(`${purpose}-${name}`)
  if ((await broker(name)) === undefined) {
    test(`${purpose} of ${name}`, (context) => context.skip(`${name} is not available`))
    return undefined
  }
  const target = await make(name, brokers)
  return {
    ...target,
    // Others run beside it, so that time is no measure here: the command line's run is.
    tolerances: { ...target.tolerances, lateMs: 1000 },
    async close() {
      await target.close?.()
      if (own) return
      await brokers.down([name])
      rmSync(brokerDir(name), { recursive: true, force: true })
    },
  }
}
