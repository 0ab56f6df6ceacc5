/** How far the job is: bars on a terminal, one line a second elsewhere. */
import { MultiBar, Presets, type SingleBar } from 'cli-progress'
import type { Counts } from './job.js'

export interface Totals {
  readonly flights: number
  readonly alerts: number
}

export interface Progress {
  /** A line between the bars, or among the lines. */
  note(text: string): void
  stop(): void
}

export function showProgress(
  stream: NodeJS.WriteStream,
  totals: Totals,
  counts: () => Counts,
): Progress {
  return stream.isTTY ? bars(stream, totals, counts) : lines(stream, totals, counts)
}

const number = (value: number) => value.toLocaleString('en')

function bars(stream: NodeJS.WriteStream, totals: Totals, counts: () => Counts): Progress {
  const multi = new MultiBar(
    {
      stream,
      format: '{name} {bar} {percentage}% {value}/{total} {more}',
      hideCursor: true,
      clearOnComplete: false,
      barsize: 25,
      linewrap: false,
      gracefulExit: false,
    },
    Presets.shades_classic,
  )
  const bar = (name: string, total: number) =>
    multi.create(total, 0, { name: name.padEnd(9), more: '' })
  const all: [SingleBar, (now: Counts) => number][] = [
    [bar('published', totals.flights), (now) => now.published],
    [bar('delays', totals.flights), (now) => now.delays],
    [bar('routes', totals.flights), (now) => now.routes],
    [bar('alerts', totals.alerts), (now) => now.alerts],
  ]
  const update = () => {
    const now = counts()
    for (const [one, value] of all) one.update(value(now))
    const more = `· retried ${number(now.retried)} · dead-lettered ${number(now.deadLettered)}`
    all[2]?.[0].update({ more })
  }
  const timer = setInterval(update, 100)
  return {
    note: (text) => multi.log(`${text}\n`),
    stop() {
      clearInterval(timer)
      update()
      multi.stop()
    },
  }
}

function lines(stream: NodeJS.WriteStream, totals: Totals, counts: () => Counts): Progress {
  const update = () => {
    const now = counts()
    const parts = [
      `published ${number(now.published)}/${number(totals.flights)}`,
      `delays ${number(now.delays)}`,
      `routes ${number(now.routes)}`,
      `alerts ${number(now.alerts)}/${number(totals.alerts)}`,
      `retried ${number(now.retried)}`,
      `dead-lettered ${number(now.deadLettered)}`,
    ]
    stream.write(`${parts.join(' · ')}\n`)
  }
  const timer = setInterval(update, 1000)
  return {
    note: (text) => stream.write(`${text}\n`),
    stop() {
      clearInterval(timer)
      update()
    },
  }
}
