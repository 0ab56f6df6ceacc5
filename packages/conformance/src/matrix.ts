import { areas } from './check.js'
import type { CheckResult, Report } from './report.js'

type Row = readonly [label: string, ...cells: string[]]

const capabilityRows = [
  ['groups', 'Groups'],
  ['order', 'Order'],
  ['durable', 'Survives a broker restart'],
  ['replay', 'New groups can start in the past'],
  ['retry', 'Who holds a retry'],
  ['orderedRetry', 'Who holds a retry that blocks its key'],
  ['delay', 'Longest delay'],
  ['cancelDelay', 'Delayed messages can be taken back'],
  ['deliveryCount', 'Counts deliveries'],
  ['lease', 'Leases'],
  ['maxBytes', 'Largest body'],
  ['headerCharset', 'Header names / values'],
  ['batch', 'Cheaper in batches'],
  ['autoCreate', 'Creates topics on first use'],
  ['priority', 'Priority levels'],
  ['ttl', 'Message ttl'],
  ['routing', 'Routing within a topic'],
  ['dedupe', 'Drops repeated ids'],
  ['deadLetters', 'Dead letters: list, redrive, discard'],
  ['circuits', 'Keeps circuits'],
  ['admin', 'Admin'],
  ['transactions', 'Transactions'],
  ['requestReply', 'Request–reply'],
] as const satisfies readonly (readonly [keyof Report['capabilities'], string])[]

/** The capability matrix as a Markdown page, from the reports of all drivers. Nothing in it depends on the time. */
export function formatMatrix(reports: readonly Report[]): string {
  const drivers = [...reports].sort((a, b) => a.driver.localeCompare(b.driver, 'en'))
  const sections = [
    '<!-- Generated from docs/conformance/*.json by `npm run conformance -- --matrix`. Do not edit. -->',
    '# Capabilities',
    'What each driver declares, and what the conformance kit found on the server named. A capability that a driver does not ' +
      'declare raises an `UnsupportedError` when it is asked for; that is checked, too.',
    '## Declared',
    table(drivers, [
      ['Server', ...drivers.map((one) => one.server)],
      ...capabilityRows.map(
        ([name, label]): Row => [
          label,
          ...drivers.map((one) => show(name, one.capabilities[name])),
        ],
      ),
    ]),
    '## Checked',
    'Passed of those that ran, by area.',
    table(drivers, [
      ...areas.map((area): Row => [area, ...drivers.map((one) => passedOf(one, area))]),
      ['**all**', ...drivers.map((one) => `**${passedOf(one)}**`)],
    ]),
    ...drivers.flatMap(details),
  ]
  return `${sections.join('\n\n')}\n`
}

function table(drivers: readonly Report[], rows: readonly Row[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map(escaped).join(' | ')} |`
  const head = ['', ...drivers.map((one) => one.driver)]
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}

function details(report: Report): string[] {
  const of = (status: CheckResult['status']) => report.checks.filter((c) => c.status === status)
  const listed = (results: readonly CheckResult[]) =>
    results.map((c) => `- \`${c.id}\`: ${escaped(c.reason ?? '')}`).join('\n')
  const lines = [`## ${report.driver}`]
  if (report.notes) lines.push(report.notes.map((note) => `- ${note}`).join('\n'))
  lines.push(
    `${report.passed} passed, ${report.failed} failed, ${report.skipped} skipped on ${report.server}.`,
  )
  if (report.unproven.length > 0) {
    lines.push(
      `No-loss checks that did not run: ${report.unproven.map((id) => `\`${id}\``).join(', ')}.`,
    )
  }
  if (report.failed > 0) lines.push('Failed:', listed(of('failed')))
  if (report.skipped > 0) lines.push('Skipped:', listed(of('skipped')))
  return lines
}

function passedOf(report: Report, area?: string): string {
  const ran = report.checks.filter(
    (c) => (area === undefined || c.area === area) && c.status !== 'skipped',
  )
  if (ran.length === 0) return '–'
  return `${ran.filter((c) => c.status === 'passed').length}/${ran.length}`
}

function show(name: string, value: unknown): string {
  if (typeof value === 'boolean') return value ? 'yes' : '–'
  if (name === 'maxBytes') return typeof value === 'number' ? size(value) : 'unbounded'
  // JSON has no Infinity: it is written as null.
  if (name === 'delay') return typeof value === 'number' ? time(value) : 'unbounded'
  if (typeof value === 'number') return value === 0 ? '–' : String(value)
  if (typeof value === 'object' && value !== null) return Object.values(value).join(' / ')
  return value === 'none' ? '–' : String(value)
}

function size(bytes: number): string {
  if (!Number.isFinite(bytes)) return 'unbounded'
  if (bytes >= 1024 * 1024) return `${round(bytes / 1024 / 1024)} MiB`
  return `${round(bytes / 1024)} KiB`
}

function time(ms: number): string {
  if (ms === 0) return '–'
  if (ms >= Number.MAX_SAFE_INTEGER) return 'unbounded'
  const days = ms / 86_400_000
  return days >= 1 ? `${round(days)} days` : `${round(ms / 1000)} s`
}

const round = (value: number) => Math.round(value * 10) / 10

const escaped = (text: string) => text.replaceAll('|', '\\|').replaceAll(/\s*\n\s*/g, ' ')
