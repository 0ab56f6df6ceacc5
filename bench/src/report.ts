import { writeFileSync } from 'node:fs'
import Table from 'cli-table3'
import type { Broker } from './drivers.js'
import type { Result } from './rounds.js'
import type { RawClient } from './session.js'

function figure(value: number): string {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2
  return value.toLocaleString('en', {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  })
}

const spread = (values: readonly number[]) =>
  `${figure(Math.min(...values))} – ${figure(Math.max(...values))}`

/** @param measured the name of what is compared with `raw`: Longshore, or once more the bare client */
export function table(results: readonly Result[], measured: string, raw: string): string {
  const result = new Table({
    head: ['scenario', 'unit', measured, 'its rounds', raw, 'its rounds', 'ratio'],
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

/** Writes the file that `--json` names. */
export function writeFigures(
  file: string,
  what: Readonly<Record<string, unknown>>,
  broker: Broker | undefined,
  raw: RawClient,
  scenarios: readonly Result[],
): void {
  const figures = {
    ...what,
    node: process.version,
    // Without its URL, which may have a password in it.
    ...(broker && {
      broker: { name: broker.name, version: broker.version, source: broker.source },
    }),
    client: raw.name,
    ...raw.setup,
    scenarios,
  }
  writeFileSync(file, `${JSON.stringify(figures, null, 2)}\n`)
}
