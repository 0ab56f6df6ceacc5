import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

const root = fileURLToPath(new URL('../..', import.meta.url))

/** Starts the built main program of an example, as its user would. */
export function start(example: string, args: readonly string[] = []) {
  const child = spawn(process.execPath, [`${root}examples/${example}/dist/main.js`, ...args], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    stdout += chunk
  })
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    stderr += chunk
  })
  const ended = new Promise<Ended>((resolve) => {
    child.on('close', (code) => resolve({ code, stdout, stderr }))
  })
  /** Resolves once the program has printed this. */
  const printed = (text: string) =>
    new Promise<void>((resolve, reject) => {
      const look = () => {
        if (stdout.includes(text)) resolve()
      }
      child.stdout.on('data', look)
      child.on('close', () => reject(new Error(`ended without '${text}': ${stdout}${stderr}`)))
      look()
    })
  return { child, ended, printed }
}
