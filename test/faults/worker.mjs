// A worker as its users write it: told to end, it drains. It tells its parent what it does.
import { setTimeout as sleep } from 'node:timers/promises'
import { runWorker } from '@longshore/core'

/** @type {{ program: string, topic: string, group: string, concurrency: number, slowMs: number }} */
const { program, topic, group, concurrency, slowMs } = JSON.parse(process.argv[2] ?? '')

/** Resolves when it has left this process. @param {unknown} message */
const tell = (message) => new Promise((resolve) => process.send?.(message, resolve))

const { default: exported } = await import(program)
const target = typeof exported === 'function' ? await exported() : exported

await runWorker(
  async () => {
    const bus = await target.connect()
    await bus.subscribe(topic, { group, concurrency }, async (/** @type {unknown} */ entry) => {
      tell({ started: entry })
      await sleep(slowMs)
      tell({ handled: entry })
    })
    await tell({ ready: true })
    return {
      close: async (options) => {
        const report = await bus.close(options)
        await tell({ report })
        return report
      },
    }
  },
  { timeout: '10s' },
)
