// The program of a consumer process: imports the target that it is told, connects, and does what its spec says.
import type { ConformanceTarget } from '../target.js'
import { behave } from './behave.js'
import type { MemberSpec, Report } from './protocol.js'

/** What the parent sends once. */
export interface Start {
  readonly program: string
  readonly spec: MemberSpec
}

function send(report: Report): void {
  // The parent may be gone; then this process is about to be, too.
  process.send?.(report, undefined, undefined, () => {})
}

function die(): void {
  // What was reported must be on its way first.
  process.send?.({ type: 'ping' }, undefined, undefined, () => process.kill(process.pid, 'SIGKILL'))
}

async function main(start: Start): Promise<void> {
  const module = await import(start.program)
  const exported = module.default ?? module.target
  const target: ConformanceTarget = typeof exported === 'function' ? await exported() : exported
  const released = new AbortController()
  const bus = await target.connect()
  process.on('disconnect', () => process.exit(0))
  process.on('SIGTERM', async () => {
    released.abort()
    await bus.close({ timeout: 5000 })
    process.exit(0)
  })
  await behave(bus, start.spec, { report: send, die, released: released.signal })
}

process.once('message', (start: Start) => {
  main(start).catch((error) => {
    send({ type: 'error', message: error instanceof Error ? (error.stack ?? '') : String(error) })
    setTimeout(() => process.exit(1), 100)
  })
})
