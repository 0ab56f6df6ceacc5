import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'

const root = join(dirname(fileURLToPath(import.meta.url)), '../..')
const read = (path: string) => readFileSync(join(root, path), 'utf8')

describe('ARCHITECTURE.md', () => {
  const guards = [...read('ARCHITECTURE.md').matchAll(/`([^`]+\.test\.ts)`: (invariant \d+)/g)]

  it('names a guard for each of the 13 invariants', () => {
    const rows = [...read('ARCHITECTURE.md').matchAll(/^\| (\d+) \|.*test\.ts`: invariant \d+/gm)]
    expect(rows.map((row) => Number(row[1]))).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13])
  })

  for (const [, file = '', title = ''] of guards) {
    it(`the guard of ${title} is in ${file}`, () => {
      expect(read(file)).toMatch(
        new RegExp(`describe(\\.each\\([^)]*\\))?\\([\\s\\S]{0,20}['"\`]${title}\\b`),
      )
    })
  }

  it('lists every folder of the core', () => {
    const text = read('ARCHITECTURE.md')
    for (const entry of readdirSync(join(root, 'packages/core/src'), { withFileTypes: true })) {
      if (entry.isDirectory() && entry.name !== 'invariants')
        expect(text).toContain(`${entry.name}/`)
    }
  })
})

describe('docs/errors.md', () => {
  it('lists every code, and no other', () => {
    const folder = join(root, 'packages/core/src')
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    const inCode = new Set<string>()
    for (const file of files.filter((each) => each.endsWith('.ts') && !each.endsWith('.test.ts'))) {
      const text = readFileSync(join(folder, file), 'utf8')
      for (const [, code = ''] of text.matchAll(/code[^=\n]*= '(LONGSHORE_[A-Z_]+)'/g))
        inCode.add(code)
    }
    const documented = [...read('docs/errors.md').matchAll(/^\| `(LONGSHORE_[A-Z_]+)`/gm)].map(
      (row) => row[1],
    )
    expect(documented.sort()).toEqual([...inCode].sort())
  })
})

describe('docs/events.md', () => {
  it('lists every event, and no other', () => {
    const events =
      /const names = \[([\s\S]*?)\]/.exec(read('packages/core/src/events.ts'))?.[1] ?? ''
    const inCode = [...events.matchAll(/'([a-z-]+)'/g)].map((match) => match[1])
    const table = read('docs/events.md')
      .split('\n')
      .filter((line) => line.startsWith('| `'))
    const documented = table.flatMap((line) =>
      [...(line.split('|')[1] ?? '').matchAll(/`([a-z-]+)`/g)].map((match) => match[1]),
    )
    expect(documented.sort()).toEqual([...inCode].sort())
  })
})
