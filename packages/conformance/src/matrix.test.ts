import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { formatMatrix } from './matrix.js'
import type { Report } from './report.js'

const docs = new URL('../../../docs/', import.meta.url)

function reports(): Report[] {
  const folder = new URL('conformance/', docs)
  return readdirSync(folder)
    .filter((file) => file.endsWith('.json'))
    .map((file) => JSON.parse(readFileSync(new URL(file, folder), 'utf8')))
}

test('docs/capabilities.md is what the reports say; `npm run conformance -- --matrix` writes it', () => {
  expect(readFileSync(new URL('capabilities.md', docs), 'utf8')).toBe(formatMatrix(reports()))
})

test('what JSON can not hold, pipes and line ends do no harm', () => {
  const report = reports().find((one) => one.driver === 'memory')!
  const odd: Report = {
    ...report,
    driver: 'odd',
    capabilities: { ...report.capabilities, delay: null as unknown as number, maxBytes: 1536 },
    checks: [{ ...report.checks[0]!, status: 'failed', reason: 'a | b\nc' }],
    failed: 1,
  }
  const page = formatMatrix([odd])
  expect(page).toContain('| Longest delay | unbounded |')
  expect(page).toContain('| Largest body | 1.5 KiB |')
  expect(page).toContain('a \\| b c')
})
