import { BrokerError } from './errors.mjs'

/** @param {string[][]} rows */
function table(rows) {
  const widths = rows.reduce(
    (/** @type {number[]} */ all, row) =>
      row.map((cell, column) => Math.max(all[column] ?? 0, cell.length)),
    [],
  )
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

/** @param {number | undefined} seconds */
function duration(seconds) {
  if (seconds === undefined) return '-'
  if (seconds < 120) return `${seconds} s`
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`
}

/**
 * What `up` says: one line a broker, and of those that failed the end of the log.
 * @param {import('./types.mjs').Outcome[]} outcomes
 */
export function printOutcomes(outcomes) {
  const rows = outcomes.flatMap(({ name, info, took }) =>
    info ? [[name, info.version, info.source, `${(took / 1000).toFixed(1)} s`, info.url]] : [],
  )
  if (rows.length > 0) process.stdout.write(`${table(rows)}\n`)
  for (const { name, error } of outcomes) {
    if (!error) continue
    process.stderr.write(`${name}: ${error.message}\n`)
    if (error instanceof BrokerError && error.details) process.stderr.write(`${error.details}\n`)
  }
}

/** @param {import('./types.mjs').BrokerStatus[]} all */
export function printStatus(all) {
  const head = ['NAME', 'STATE', 'SOURCE', 'VERSION', 'PID', 'UPTIME', 'URL']
  const rows = all.map(({ name, state, source, version, pid, uptime, url, reason }) => [
    name,
    state,
    source ?? '-',
    version ?? '-',
    pid === undefined ? '-' : String(pid),
    duration(uptime),
    [url ?? '', reason ? `(${reason})` : ''].join(' ').trim() || '-',
  ])
  process.stdout.write(`${table([head, ...rows])}\n`)
}
