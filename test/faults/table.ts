import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** What came of one cell of the matrix. */
export interface Outcome {
  readonly cell: string
  readonly title: string
  readonly status: 'passed' | 'failed' | 'skipped'
  readonly ms: number
  readonly reason?: string
  /** lost, duplicates, allowed (duplicates), noticedMs and others. */
  readonly counts: Readonly<Record<string, number>>
}

export interface Column {
  readonly driver: string
  readonly server: string
  readonly outcomes: readonly Outcome[]
}

/** Keeps what came of one driver. */
export function save(folder: string, column: Column): void {
  const file = join(folder, `${column.driver}.json`)
  writeFileSync(file, `${JSON.stringify(column, null, 2)}\n`)
}

/** What was kept of all drivers. */
export function read(folder: string): Column[] {
  const files = readdirSync(folder).sort()
  return files.map((file) => JSON.parse(readFileSync(join(folder, file), 'utf8')) as Column)
}

const words = { passed: '', failed: 'FAILED ', skipped: '-' } as const

/** What a cell found, in a few words. */
export function figuresOf({ status, counts }: Outcome): string {
  if (status === 'skipped') return words.skipped
  const { lost, duplicates, allowed, noticedMs } = counts
  const parts = [
    ...(lost === undefined ? [] : [`lost ${lost}`]),
    ...(duplicates === undefined ? [] : [`dup ${duplicates}${allowed ? `/${allowed}` : ''}`]),
    ...(noticedMs === undefined ? [] : [`${noticedMs} ms`]),
  ]
  return words[status] + parts.join(', ')
}

/** Cells by drivers: confirmed messages lost, duplicates of those allowed, and how soon the fault was noticed or over. */
export function format(columns: readonly Column[]): string {
  const cells = [...new Set(columns.flatMap(({ outcomes }) => outcomes.map(({ cell }) => cell)))]
  const rows = [
    ['fault', ...columns.map(({ driver }) => driver)],
    ...cells.map((cell) => [
      cell,
      ...columns.map(({ outcomes }) => {
        const outcome = outcomes.find((one) => one.cell === cell)
        return outcome ? figuresOf(outcome) : ''
      }),
    ]),
  ]
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)))
  return rows
    .map((row) =>
      row
        .map((text, i) => text.padEnd(widths[i]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}
