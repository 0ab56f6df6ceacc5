// Around all fault tests of a run: puts their results together, prints them as one table and keeps them as JSON, in the
// file that LONGSHORE_FAULTS names or in the data folder.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { dataRoot, makeDir } from '../../scripts/brokers/paths.mjs'
import { format, read } from './table.js'

export default function setup(): () => void {
  const parts = mkdtempSync(join(tmpdir(), 'longshore-faults-'))
  process.env.LONGSHORE_FAULTS_PARTS = parts
  return () => {
    const columns = read(parts)
    rmSync(parts, { recursive: true, force: true })
    if (columns.length === 0) return
    const file = process.env.LONGSHORE_FAULTS || join(makeDir(dataRoot()), 'faults.json')
    writeFileSync(file, `${JSON.stringify(columns, null, 2)}\n`)
    const legend = 'confirmed messages lost, duplicates of those allowed, ms until noticed or over'
    console.log(`\nFaults: ${legend}\n\n${format(columns)}\n\n(${file})\n`)
  }
}
