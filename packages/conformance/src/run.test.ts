import { expect, test } from 'vitest'
import { type Check, check } from './check.js'
import { checks } from './checks/index.js'
import { formatResult, formatSummary } from './report.js'
import { type RunOptions, runConformance } from './run.js'
import { memoryTarget } from './targets/memory.js'

const base = { area: 'publish', ref: 13, title: 'a check' } as const

const passes = check({ ...base, id: 'a.passes', run: async (ctx) => ctx.count({ seen: 3 }) })
const fails = check({
  ...base,
  id: 'a.fails',
  run: async (ctx) => ctx.until(() => false, 'what never comes', 20),
})
const crashes = check({
  ...base,
  id: 'a.crashes',
  run: async () => {
    throw new TypeError('a bug')
  },
})
const needsHook = check({
  ...base,
  id: 'b.needs-hook',
  noLoss: true,
  needs: { hooks: ['proxy'] },
  run: async () => {},
})
const needsAny = check({
  ...base,
  id: 'b.needs-any',
  needs: { anyHook: ['proxy', 'program'] },
  run: async () => {},
})
const needsCapability = check({
  ...base,
  id: 'b.needs-capability',
  needs: { capabilities: ['dedupe'] },
  run: async () => {},
})
const skips = check({ ...base, id: 'b.skips', run: async (ctx) => ctx.skip('not today') })
const stuck = check({
  ...base,
  id: 'b.stuck',
  timeoutMs: 50,
  run: () => new Promise<void>(() => {}),
})

const run = (list: readonly Check[], options: RunOptions = {}) =>
  runConformance(memoryTarget('run-test'), { checks: list, ...options })

test('each check is reported with its status, reason and counts', async () => {
  const report = await run([passes, fails, crashes, needsHook, needsAny, needsCapability, skips])
  const brief = report.checks.map(({ id, status, reason }) => [id, status, reason?.split('\n')[0]])
  expect(brief).toEqual([
    ['a.passes', 'passed', undefined],
    ['a.fails', 'failed', 'waited 20 ms in vain for what never comes'],
    ['a.crashes', 'failed', 'TypeError: a bug'],
    ['b.needs-hook', 'skipped', "the target has no hook 'proxy'"],
    ['b.needs-any', 'skipped', "the target has none of the hooks 'proxy', 'program'"],
    ['b.needs-capability', 'skipped', "the driver does not declare 'dedupe'"],
    ['b.skips', 'skipped', 'not today'],
  ])
  expect(report.checks[0]?.counts).toEqual({ seen: 3 })
  expect(report).toMatchObject({
    driver: 'memory',
    server: 'memory',
    passed: 1,
    failed: 2,
    skipped: 4,
  })
  expect(report.unproven).toEqual(['b.needs-hook'])
  expect(formatResult(report.checks[3]!)).toContain('NO-LOSS CHECK NOT RUN')
  expect(formatSummary(report)).toContain('No-loss checks that did not run: b.needs-hook')
})

test('a check that does not end fails at its timeout', async () => {
  const report = await run([stuck])
  expect(report.checks[0]).toMatchObject({
    status: 'failed',
    reason: expect.stringContaining('50 ms'),
  })
})

test('checks are chosen by id or by the beginning of their ids', async () => {
  const ids = async (only: string[]) => {
    const report = await run([passes, fails, skips], { only })
    return report.checks.map((one) => one.id)
  }
  expect(await ids(['b'])).toEqual(['b.skips'])
  expect(await ids(['a.passes', 'b.skips'])).toEqual(['a.passes', 'b.skips'])
  await expect(ids(['a.pass'])).rejects.toThrow("no check is called 'a.pass'")
})

test('bail stops at the first failure', async () => {
  const report = await run([fails, passes], { bail: true, concurrency: 1 })
  expect(report.checks.map((one) => one.id)).toEqual(['a.fails'])
})

test('in place of a check whose capability is undeclared its otherwise runs', async () => {
  let ran = ''
  const either = check({
    ...base,
    id: 'c.either',
    noLoss: true,
    needs: { capabilities: ['dedupe'], hooks: ['crash'] },
    run: async () => {
      ran = 'run'
    },
    otherwise: async () => {
      ran = 'otherwise'
    },
  })
  expect((await run([either])).passed).toBe(1)
  expect(ran).toBe('otherwise')
})

test('no capability can switch a no-loss check off', () => {
  const spec = { ...base, id: 'd.loss', noLoss: true, run: async () => {} }
  expect(() => check({ ...spec, needs: { capabilities: ['ttl'] } })).toThrow('otherwise')
})

test('ids are unique, begin with a word of their own, and every number of the list is there', () => {
  const ids = checks.map((one) => one.id)
  expect(new Set(ids).size).toBe(ids.length)
  expect(ids.filter((id) => !/^[a-z]+\.[a-z]+(-[a-z]+)*$/.test(id))).toEqual([])
  const numbers = new Set(checks.map((one) => one.ref))
  // Tracing, outbox and inbox are checked where they live.
  const elsewhere = [64, 66, 67]
  const all = Array.from({ length: 67 }, (_, i) => i + 1).filter((n) => !elsewhere.includes(n))
  expect(all.filter((n) => !numbers.has(n))).toEqual([])
})

test('all names of a check carry the run id', async () => {
  const names: string[] = []
  const named = check({
    ...base,
    id: 'e.named',
    run: async (ctx) => void names.push(ctx.topic(), ctx.group(), ctx.topic(), ctx.runId),
  })
  await run([named])
  const runId = names.pop()!
  expect(names.every((name) => name.includes(runId))).toBe(true)
  expect(new Set(names).size).toBe(3)
})
