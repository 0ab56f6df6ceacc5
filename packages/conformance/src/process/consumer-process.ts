import { type ChildProcess, fork } from 'node:child_process'
import { existsSync } from 'node:fs'
import { isAbsolute } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { Entry } from '../ledger.js'
import { until } from '../until.js'
import type { Start } from './child.js'
import type { Handling, Member, MemberSpec, Report } from './protocol.js'

export interface ConsumerProcessOptions {
  /** URL or path of a module whose default export is the target, or a function that returns it. */
  readonly program: string | URL
  readonly spec: MemberSpec
  /** Within how long it must be ready. Default 20 s. */
  readonly timeoutMs?: number
}

/** A member of a group in a process of its own, to be killed, stopped and continued. */
export class ConsumerProcess implements Member {
  readonly started: Handling[] = []
  readonly handled: Handling[] = []
  readonly confirmed: Entry[] = []
  readonly errors: string[] = []
  readonly #child: ChildProcess
  readonly #exited: Promise<void>
  #ready = false
  #dead = false
  #stderr = ''

  /** Resolves when it has joined its group. */
  static async start(options: ConsumerProcessOptions): Promise<ConsumerProcess> {
    const member = new ConsumerProcess(options.program, options.spec)
    const problem = () => [...member.errors, member.#stderr].join('\n').trim()
    try {
      await until(() => member.#ready || member.#dead || member.errors.length > 0, {
        deadline: options.timeoutMs ?? 20_000,
        what: () => `the consumer process to be ready. ${problem()}`,
      })
      if (!member.#ready) throw new Error(`the consumer process did not start. ${problem()}`)
    } catch (error) {
      await member.kill()
      throw error
    }
    return member
  }

  private constructor(program: string | URL, spec: MemberSpec) {
    this.#child = fork(childProgram(), [], {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      serialization: 'advanced',
      execArgv: [],
    })
    this.#child.stderr?.on('data', (chunk) => {
      this.#stderr = (this.#stderr + chunk).slice(-4000)
    })
    this.#child.on('message', (report: Report) => this.#take(report))
    this.#child.on('error', (error) => this.errors.push(error.message))
    this.#exited = new Promise((resolve) => {
      this.#child.on('close', () => {
        this.#dead = true
        resolve()
      })
    })
    const start: Start = { program: importable(program), spec }
    this.#child.send(start, () => {})
  }

  #take(report: Report): void {
    if (report.type === 'ready') this.#ready = true
    else if (report.type === 'started') this.started.push(report.handling)
    else if (report.type === 'handled') this.handled.push(report.handling)
    else if (report.type === 'confirmed') this.confirmed.push(report.entry)
    else if (report.type === 'error') this.errors.push(report.message)
  }

  get pid(): number | undefined {
    return this.#child.pid
  }

  get dead(): boolean {
    return this.#dead
  }

  /** SIGKILL: nothing of it runs any more. Resolves when all that it reported has arrived. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.#exited
  }

  /** SIGSTOP: it hangs, its connections stay open. */
  stop(): void {
    this.#child.kill('SIGSTOP')
  }

  /** SIGCONT. */
  continue(): void {
    this.#child.kill('SIGCONT')
  }

  /** SIGTERM: it drains and exits. */
  async close(): Promise<void> {
    this.#child.kill('SIGTERM')
    await this.#exited
  }
}

function importable(program: string | URL): string {
  if (program instanceof URL) return program.href
  return isAbsolute(program) ? pathToFileURL(program).href : program
}

/** Node runs JavaScript only: where this runs from its sources, the child runs from the build. */
function childProgram(): string {
  const path = fileURLToPath(new URL('./child.js', import.meta.url))
  if (existsSync(path)) return path
  const built = path.replace(/([\\/])src([\\/]process[\\/]child\.js)$/, '$1dist$2')
  if (!existsSync(built)) throw new Error(`${built} is missing: build @longshore/conformance first`)
  return built
}
