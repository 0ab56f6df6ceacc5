/** The figures of a run: as a table for people, as an object for programs. */
import Table from 'cli-table3'
import type { JobOutcome, Work } from './job.js'

export interface GroupReport {
  readonly group: string
  readonly published: number
  readonly handled: number
  readonly retried: number
  readonly deadLettered: number
  readonly redriven: number
  /** Deliveries of messages that were handled before. */
  readonly duplicates: number
  /** Milliseconds from publish to ack, waiting, retries and redrive included. */
  readonly p50: number
  readonly p99: number
  readonly perSecond: number
}

export interface Report {
  readonly driver: string
  readonly server: string
  readonly node: string
  readonly flights: number
  readonly seconds: number
  readonly groups: readonly GroupReport[]
  readonly total: Omit<GroupReport, 'group' | 'p50' | 'p99'>
  /** Whether the results are those of a direct computation over the file. */
  readonly equal: boolean
  readonly differences: readonly string[]
}

/** The value that at least `share` of the values don't exceed; NaN for none. */
export function nearestRank(values: readonly number[], share: number): number {
  const sorted = Float64Array.from(values).sort()
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN
}

export function report(
  { consumers, seconds, missing }: JobOutcome,
  { flights }: Work,
  found: readonly string[],
): Report {
  const { bus, meter, names } = consumers
  const published = (topic: string) => meter.published.get(topic) ?? 0
  const group = (label: string, name: string, topic: string, duplicates: number) => {
    const { handled, retried, deadLettered, redriven, latencies } = meter.of(name)
    return {
      group: label,
      published: published(topic),
      handled,
      retried,
      deadLettered,
      redriven,
      duplicates,
      p50: round(nearestRank(latencies, 0.5)),
      p99: round(nearestRank(latencies, 0.99)),
      perSecond: Math.round(handled / seconds),
    }
  }
  const groups = [
    group('delays', names.delays, names.flights, consumers.delays.duplicates),
    group('routes', names.routes, names.flights, consumers.routes.duplicates),
    group('alerts', names.desk, names.alerts, consumers.alerts.duplicates),
  ]
  const sum = (value: (group: GroupReport) => number) =>
    groups.reduce((total, one) => total + value(one), 0)
  const differences = [...missing, ...found]
  return {
    driver: bus.driver,
    server: bus.server,
    node: process.version,
    flights: flights.length,
    seconds: round(seconds),
    groups,
    total: {
      published: published(names.flights) + published(names.alerts),
      handled: sum((one) => one.handled),
      retried: sum((one) => one.retried),
      deadLettered: sum((one) => one.deadLettered),
      redriven: sum((one) => one.redriven),
      duplicates: sum((one) => one.duplicates),
      perSecond: Math.round(sum((one) => one.handled) / seconds),
    },
    equal: differences.length === 0,
    differences,
  }
}

const round = (value: number) => Math.round(value * 100) / 100

export function table({ groups, total }: Report): string {
  const heads = ['group', 'published', 'handled', 'retried', 'dead-lettered', 'redriven']
  const more = ['duplicates', 'p50 ms', 'p99 ms', 'messages/s']
  const rows = [...groups, { ...total, group: 'all', p50: Number.NaN, p99: Number.NaN }]
  const result = new Table({
    head: [...heads, ...more],
    colAligns: [...heads, ...more].map((head) => (head === 'group' ? 'left' : 'right')),
    style: { head: [], border: [], compact: true },
  })
  for (const row of rows) {
    const { group, published, handled, retried, deadLettered, redriven, duplicates } = row
    const numbers = [published, handled, retried, deadLettered, redriven, duplicates]
    result.push([
      group,
      ...numbers.map((value) => value.toLocaleString('en')),
      ...[row.p50, row.p99].map((value) => (Number.isNaN(value) ? '' : value.toFixed(1))),
      row.perSecond.toLocaleString('en'),
    ])
  }
  return result.toString()
}
