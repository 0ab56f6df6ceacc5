import Table from 'cli-table3'
import type { Result } from './rounds.js'

function figure(value: number): string {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2
  return value.toLocaleString('en', {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  })
}

const spread = (values: readonly number[]) =>
  `${figure(Math.min(...values))} – ${figure(Math.max(...values))}`

export function table(results: readonly Result[], raw: string): string {
  const result = new Table({
    head: ['scenario', 'unit', 'Longshore', 'its rounds', raw, 'its rounds', 'ratio'],
    colAligns: ['left', 'left', 'right', 'right', 'right', 'right', 'right'],
    style: { head: [], border: [], compact: true },
  })
  for (const { name, unit, longshore, raw, ratio, rounds } of results) {
    result.push([
      name,
      unit,
      figure(longshore),
      spread(rounds.longshore),
      figure(raw),
      spread(rounds.raw),
      ratio === null ? '' : figure(ratio),
    ])
  }
  return result.toString()
}
