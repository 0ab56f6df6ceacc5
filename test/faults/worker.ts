import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Entry } from '@longshore/conformance'
import { type Bus, runWorker, silentLogger } from '@longshore/core'
import { pause } from './load.js'

export interface WorkerSpec {
  readonly topic: string
  readonly group: string
  readonly concurrency: number
  readonly slowMs: number
}

/** A worker that drains when it is told to end. */
export interface Worker {
  readonly started: readonly Entry[]
  readonly handled: readonly Entry[]
  /** Tells it to end; resolves to the exit code. */
  end(): Promise<number | null>
  kill(): void
}

/** In a process of its own, ended by SIGTERM. */
export async function forkWorker(program: string | URL, spec: WorkerSpec): Promise<Worker> {
  const started: Entry[] = []
  const handled: Entry[] = []
  const path = fileURLToPath(new URL('./worker.mjs', import.meta.url))
  const child = fork(path, [JSON.stringify({ ...spec, program: String(program) })], {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    execArgv: [],
  })
  let errors = ''
  child.stderr?.on('data', (chunk) => {
    errors = (errors + chunk).slice(-4000)
  })
  const closed = new Promise<number | null>((resolve) => child.once('close', resolve))
  const ready = new Promise<void>((resolve, reject) => {
    child.on('message', (told: { ready?: boolean; started?: Entry; handled?: Entry }) => {
      if (told.started) started.push(told.started)
      if (told.handled) handled.push(told.handled)
      if (told.ready) resolve()
    })
    closed.then((code) => reject(new Error(`the worker ended with code ${code}: ${errors}`)))
  })
  await ready
  const end = () => {
    child.kill('SIGTERM')
    return closed
  }
  return { started, handled, end, kill: () => child.kill('SIGKILL') }
}

/** In this process, ended by a signal object. */
export async function startWorker(bus: Bus, spec: WorkerSpec): Promise<Worker> {
  const started: Entry[] = []
  const handled: Entry[] = []
  const abort = new AbortController()
  const { topic, slowMs, ...options } = spec
  await bus.subscribe<Entry, Entry>(topic, options, async (entry) => {
    started.push(entry)
    await pause(slowMs)
    handled.push(entry)
  })
  const { signal } = abort
  const options2 = {
    exit: false,
    signal,
    signals: [],
    timeout: '10s',
    logger: silentLogger,
  } as const
  const running = runWorker(async () => bus, options2)
  const end = async () => {
    abort.abort()
    return (await running) ? 0 : 1
  }
  return { started, handled, end, kill: () => abort.abort() }
}
