import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Result } from './rounds.js'

/**
 * Measures one scenario in a process of its own: what other scenarios did to the compiled code (call sites that have seen
 * everything, a large heap) is not what a service meets. `args` are the options beside `--scenario` and `--json`.
 */
export async function measureAlone(name: string, args: readonly string[]): Promise<Result[]> {
  const folder = mkdtempSync(join(tmpdir(), 'longshore-bench-'))
  const file = join(folder, 'figures.json')
  try {
    const program = process.argv[1] as string
    const own = [...process.execArgv, program, ...args, '--scenario', name, '--json', file]
    const child = spawn(process.execPath, own, { stdio: ['ignore', 'ignore', 'inherit'] })
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject)
      child.once('close', resolve)
    })
    if (code !== 0) throw new Error(`'${name}' ended with exit code ${code}; its output is above`)
    const { scenarios } = JSON.parse(readFileSync(file, 'utf8')) as { scenarios: Result[] }
    return scenarios
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
