import { setTimeout as sleep } from 'node:timers/promises'
import { connect, runWorker } from '@longshore/core'

// Runs until SIGTERM or SIGINT, then lets running handlers finish and exits with code 0.
await runWorker(
  async () => {
    const bus = await connect(process.env.BROKER_URL ?? 'memory://')
    await bus.subscribe<{ n: number }, { n: number }>(
      'jobs',
      { group: 'worker', concurrency: 4 },
      async ({ n }, { signal }) => {
        console.log(`job ${n} started`)
        await sleep(500, undefined, { signal })
        console.log(`job ${n} done`)
      },
    )
    // Elsewhere in a real system.
    for (let n = 1; n <= 4; n++) await bus.publish('jobs', { n })
    console.log('ready')
    return bus
  },
  { timeout: '10s' },
)
