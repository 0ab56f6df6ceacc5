import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { start } from './run.js'

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

describe('quickstart', () => {
  it('charges each order once, retries what failed and delays what should wait', async () => {
    const { code, stdout, stderr } = await start('quickstart').ended
    expect(stderr).toBe('')
    expect(stdout.trim().split('\n')).toEqual([
      'charged ada 99 for order 1, attempt 1',
      'charged bob 2500 for order 2, attempt 2',
      'charged ada 12 for order 3, attempt 1',
    ])
    expect(code).toBe(0)
  })

  it('is the code that the README shows', () => {
    expect(read('README.md')).toContain(
      `\`\`\`ts\n${read('examples/quickstart/src/main.ts')}\`\`\``,
    )
  })
})

describe('worker', () => {
  it('finishes what it runs when it is told to end, and exits with 0', async () => {
    const { child, ended, printed } = start('worker')
    await printed('job 4 started')
    child.kill('SIGTERM')
    const { code, stdout } = await ended
    for (const n of [1, 2, 3, 4]) expect(stdout).toContain(`job ${n} done`)
    expect(code).toBe(0)
  })
})

describe('flights', () => {
  it('prints plain lines and a table, and writes the figures', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'longshore-flights-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const json = join(folder, 'figures.json')
    const { code, stdout, stderr } = await start('flights', ['--events', '1000', '--json', json])
      .ended
    expect(stderr).toBe('')
    expect(stdout).toMatch(/^published 1,000\/1,000 · delays 1,000 · routes 1,000/m)
    expect(stdout).toContain('dead-lettered')
    expect(stdout).toContain('equal to the direct computation')
    expect(code).toBe(0)
    const figures = JSON.parse(readFileSync(json, 'utf8'))
    expect(figures).toMatchObject({ driver: 'memory', flights: 1000, equal: true, differences: [] })
    expect(figures.groups).toHaveLength(3)
  })

  it.each([
    [['--evnets', '5'], 2, "Unknown option '--evnets' (--help shows the options)"],
    [['--events', '-1'], 2, '--events'],
    [['--broker', 'rabitmq'], 1, "no broker 'rabitmq'; there are rabbitmq, nats"],
    [['--url', 'nats://localhost'], 1, '@longshore/nats'],
    [['--url', 'mqtt://localhost'], 1, 'mqtt'],
  ])('answers %j with one line', async (args, expected, message) => {
    const { code, stdout, stderr } = await start('flights', args).ended
    expect(stdout).toBe('')
    expect(stderr).toContain(message)
    expect(stderr.trim().split('\n')).toHaveLength(1)
    expect(code).toBe(expected)
  })

  it('drains on SIGINT and says what is missing', async () => {
    const { child, ended, printed } = start('flights', ['--events', '500000'])
    await printed('flights and')
    await printed('published ')
    child.kill('SIGINT')
    const { code, stdout } = await ended
    expect(stdout).toMatch(/interrupted/)
    expect(stdout).toMatch(/published: [\d]+ of 500000/)
    expect(code).toBe(130)
  })
})

it.each(['README.md', 'CONTRIBUTING.md'])('%s links to what exists', (page) => {
  const links = [...read(page).matchAll(/\]\(([^)#:]+)\)/g)].map(([, path]) => path ?? '')
  expect(links.length).toBeGreaterThan(0)
  expect(links.filter((path) => !existsSync(new URL(`../../${path}`, import.meta.url)))).toEqual([])
})
