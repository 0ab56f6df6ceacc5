import { checkSignal } from './abort.js'
import type { CloseReport } from './api.js'
import { type Duration, toMs } from './duration.js'
import { OptionError, toError } from './errors.js'
import { consoleLogger, guardedLogger, type Logger } from './logger.js'
import { checkOptions } from './options.js'

/** Whatever drains when it is closed: a bus, or several in one object. */
export interface Drainable {
  close(options: { timeout: number }): Promise<CloseReport | undefined>
}

export interface WorkerOptions {
  /** How long handlers may take to finish after the signal. Default 30 s. */
  readonly timeout?: Duration
  /** Default SIGTERM and SIGINT. */
  readonly signals?: readonly NodeJS.Signals[]
  /** End the process afterwards: code 0 if all drained in time, else 1. Default true. */
  readonly exit?: boolean
  /** Ends the worker as a signal does. */
  readonly signal?: AbortSignal
  readonly logger?: Logger
}

/** A second signal within so many milliseconds is the same one: a terminal and npm both pass Ctrl-C on. */
const repeatMs = 500

/**
 * Runs a worker until the process is told to end, then drains it. Resolves (with `exit: false`) to whether all was drained
 * in time. A second signal, half a second later or more, ends the process at
 * once, with code 1. Handler errors never get here: they are the
 * subscriptions'. A subscription that can't go on is told by its `done`. If `start` fails, its error is thrown on.
 */
export async function runWorker(
  start: () => Promise<Drainable>,
  options: WorkerOptions = {},
): Promise<boolean> {
  if (typeof start !== 'function') {
    throw new OptionError(
      'runWorker needs a function that starts the worker and returns what is to be drained',
    )
  }
  checkOptions('runWorker', options, ['timeout', 'signals', 'exit', 'signal', 'logger'])
  checkSignal('runWorker', options.signal)
  const { signals = ['SIGTERM', 'SIGINT'], exit = true, signal } = options
  const logger = guardedLogger(options.logger ?? consoleLogger)
  const timeout = toMs(options.timeout ?? 30_000, 'runWorker timeout')
  let told: (reason: string) => void = () => {}
  const asked = new Promise<string>((resolve) => {
    told = resolve
  })
  let signalledAt: number | undefined
  const onSignal = (name: NodeJS.Signals) => {
    if (signalledAt !== undefined) {
      if (performance.now() - signalledAt < repeatMs) return
      logger.warn(`${name} again: ending without draining`)
      process.exit(1)
    }
    signalledAt = performance.now()
    told(name)
  }
  const onAbort = () => told('aborted')
  // Before starting, so that a signal in the middle of it is not lost.
  for (const name of signals) process.on(name, onSignal)
  if (signal?.aborted) onAbort()
  else signal?.addEventListener('abort', onAbort, { once: true })
  const stopListening = () => {
    for (const name of signals) process.off(name, onSignal)
    signal?.removeEventListener('abort', onAbort)
  }
  // Keeps the process alive until it is told to end, whatever the subscriptions do.
  const alive = setInterval(() => {}, 2 ** 31 - 1)
  try {
    const worker = await start()
    if (typeof worker?.close !== 'function') {
      throw new OptionError(
        'runWorker: start must return what is to be drained, for instance the bus',
      )
    }
    logger.info('worker started')
    const reason = await asked
    logger.info(`${reason}: draining`, { timeoutMs: timeout })
    const drained = await drain(worker, timeout, logger)
    if (exit) process.exit(drained ? 0 : 1)
    return drained
  } finally {
    clearInterval(alive)
    stopListening()
  }
}

async function drain(worker: Drainable, timeout: number, logger: Logger): Promise<boolean> {
  try {
    const report = await worker.close({ timeout })
    if (report === undefined || report.drained) return true
    logger.error(`${report.abandoned} handlers were still running after ${timeout} ms`)
  } catch (error) {
    logger.error(`draining failed: ${toError(error).message}`)
  }
  return false
}
