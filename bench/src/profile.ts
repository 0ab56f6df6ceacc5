import { mkdirSync, writeFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import { join } from 'node:path'

/** Runs with the CPU profiler on; writes `<name>.cpuprofile`, which browsers and editors open. */
export async function profiled<T>(folder: string, name: string, work: () => Promise<T>) {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.setSamplingInterval', { interval: 200 })
  await session.post('Profiler.start')
  try {
    return await work()
  } finally {
    const { profile } = await session.post('Profiler.stop')
    session.disconnect()
    mkdirSync(folder, { recursive: true })
    const file = join(folder, `${name.replaceAll(/[^A-Za-z0-9]+/g, '-')}.cpuprofile`)
    writeFileSync(file, JSON.stringify(profile))
  }
}
