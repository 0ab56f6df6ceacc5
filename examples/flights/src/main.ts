import { writeFileSync } from 'node:fs'
import { type Bus, connect, LongshoreError, silentLogger } from '@longshore/core'
import { broker } from './broker.js'
import { differences } from './compare.js'
import { computeDirectly } from './direct.js'
import { damage, loadFlights } from './events.js'
import { runJob, tidy } from './job.js'
import { type Options, parseOptions, UsageError, usage } from './options.js'
import { type Progress, showProgress } from './progress.js'
import { report, table } from './report.js'

const deadlineMs = 300_000
const stallMs = 30_000
const shownDifferences = 10

/** Resolves with the exit code: 0 equal, 1 different or failed, 2 wrong usage, 130 interrupted. */
async function main(args: readonly string[]): Promise<number> {
  try {
    const options = parseOptions(args)
    if (!options.help) return await stream(options)
    console.log(usage)
    return 0
  } catch (error) {
    return explain(error)
  }
}

/** Errors that name their cure need no stack. */
function explain(error: unknown): number {
  if (error instanceof UsageError) {
    console.error(`${error.message} (--help shows the options)`)
    return 2
  }
  const known = error instanceof LongshoreError || (error as Error)?.name?.startsWith('Broker')
  console.error(known ? (error as Error).message : error)
  return 1
}

async function stream(options: Options): Promise<number> {
  const log = (line: string) => console.log(line)
  const url = options.broker ? await broker(options.broker, log) : (options.url ?? 'memory://')
  const flights = loadFlights(options.events)
  const damaged = damage(flights)
  const expected = computeDirectly(flights, damaged)
  const work = { flights, damaged, alertCount: expected.alertCount }

  const interrupted = onInterrupt()
  // What the job does to its messages on purpose would fill the log; the counts tell it.
  const bus = await connect(url, { logger: silentLogger, signal: interrupted })
  let progress: Progress | undefined
  try {
    log(`${flights.length} flights and ${damaged.length} damaged copies through ${bus.server}`)
    reportConnection(bus, (text) => (progress ? progress.note(text) : log(text)))
    const outcome = await runJob(bus, work, {
      run: Date.now().toString(36),
      signal: interrupted,
      deadlineMs,
      stallMs,
      watch(counts) {
        const totals = { flights: flights.length, alerts: work.alertCount }
        progress = showProgress(process.stdout, totals, counts)
      },
    })
    progress?.stop()
    progress = undefined

    const complete = outcome.missing.length === 0
    const found = complete ? differences(outcome.consumers.results, expected) : []
    const figures = report(outcome, work, found)
    log(table(figures))
    log(`${figures.seconds} s; latencies are from publish to ack, with all waiting and retries`)
    if (options.json) writeFileSync(options.json, `${JSON.stringify(figures, null, 2)}\n`)
    if (figures.equal) {
      log('equal to the direct computation: nothing lost, nothing counted twice, order kept')
      await tidy(outcome.consumers)
      return 0
    }
    if (complete) log(`DIFFERENT from the direct computation, in ${found.length} places:`)
    else log(`${interrupted.aborted ? 'interrupted' : 'INCOMPLETE'}; what had come by then:`)
    for (const line of figures.differences.slice(0, shownDifferences)) log(`  ${line}`)
    if (found.length > shownDifferences) log(`  and ${found.length - shownDifferences} more`)
    return interrupted.aborted ? 130 : 1
  } finally {
    progress?.stop()
    await bus.close({ timeout: '10s' })
  }
}

/** The first Ctrl-C lets running handlers finish, one that comes later ends the process. */
function onInterrupt(): AbortSignal {
  const controller = new AbortController()
  let first = 0
  const interrupt = () => {
    // npm passes on what the terminal has sent already: two at once are one.
    if (first > 0 && Date.now() - first > 500) process.exit(130)
    if (first === 0) first = Date.now()
    controller.abort()
  }
  process.on('SIGINT', interrupt)
  process.on('SIGTERM', interrupt)
  return controller.signal
}

function reportConnection(bus: Bus, note: (text: string) => void): void {
  bus.on('connection', ({ state, detail }) =>
    note(`connection ${state}${detail ? `: ${detail}` : ''}`),
  )
}

process.exitCode = await main(process.argv.slice(2))
