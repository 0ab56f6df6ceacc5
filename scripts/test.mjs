// All tests, with the brokers that they need: `npm test -- [--keep] [--no-brokers] [arguments of vitest run]`.
// The very last line is `N passed, N failed, N skipped`.
import { mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { bootstrap, dataFolder, run, tool } from './bootstrap.mjs'
import { BROKERS, down, downApart, status, upAll } from './brokers/index.mjs'

const usage = `Usage: npm test -- [--keep] [--no-brokers] [arguments of 'vitest run']

Brings up all brokers, runs all tests (or those that the arguments name), and ends the brokers that it started.

  --keep        leave the brokers running, so that the next run starts sooner
  --no-brokers  start none; tests that need one are skipped, with the reason`

const own = ['--keep', '--no-brokers', '--help']
const given = process.argv.slice(2)
const keep = given.includes('--keep')
const rest = given.filter((argument) => !own.includes(argument))
const filtered = rest.some((one) => one === '-t' || one.startsWith('--testNamePattern'))
/** What the conformance kit says of a check that a driver rules out by its capabilities, or a target by its hooks. */
const declared = /^the (driver does not declare|target has no hook) /
const inCi = Boolean(process.env.CI)

if (given.includes('--help')) {
  console.log(usage)
  process.exit(0)
}

await bootstrap()

const interrupted = new AbortController()
const interrupt = () => interrupted.abort()
process.on('SIGINT', interrupt)
process.on('SIGTERM', interrupt)

/** @type {string[]} */
let started = []
/** @type {string[]} */
let missing = []
let code = 1
/** @type {import('./test-reporter.mjs').Summary} */
let summary = { passed: 0, failed: 0, skipped: 0, skips: [] }

try {
  if (!given.includes('--no-brokers')) ({ started, missing } = await startBrokers())
  if (!interrupted.signal.aborted) ({ code, summary } = await runTests())
} finally {
  if (!keep && started.length > 0) {
    await down(started).catch((error) => console.error(error.message))
  }
  // Tests that set brokers apart end them, unless they were interrupted.
  await downApart().catch((error) => console.error(error.message))
}

for (const { test, reason } of summary.skips) {
  // With `-t` all other tests are skipped, which needs no line each.
  if (reason !== undefined || !filtered) {
    console.log(`skipped: ${test}: ${reason ?? 'no reason given'}`)
  }
}
let failed = summary.failed
if (inCi && missing.length > 0) {
  console.log(`in CI every broker must come up; missing: ${missing.join(', ')}`)
  failed += missing.length
}
const unexpected = summary.skips.filter(({ reason }) => !declared.test(reason ?? ''))
if (inCi && unexpected.length > 0) {
  console.log(
    `in CI nothing may be skipped but what a driver declares: ${unexpected.length} others`,
  )
  failed += unexpected.length
}
if (interrupted.signal.aborted) console.log('interrupted')
// Whatever else made vitest fail (no test found, a wrong argument, a crash) counts once.
if (code !== 0 && failed === 0) failed = 1
console.log(`${summary.passed} passed, ${failed} failed, ${summary.skipped} skipped`)
process.exitCode = failed === 0 ? 0 : 1

async function startBrokers() {
  const before = await status(BROKERS)
  const running = new Set(before.flatMap(({ name, state }) => (state === 'up' ? [name] : [])))
  const log = (/** @type {string} */ line) => console.log(`brokers: ${line}`)
  const outcomes = await upAll(BROKERS, { log, signal: interrupted.signal })
  for (const { name, info, error, took } of outcomes) {
    if (info) {
      const already = running.has(name) ? 'was running' : `up in ${(took / 1000).toFixed(1)} s`
      console.log(`brokers: ${name} ${info.version} (${info.source}), ${already}`)
    } else console.log(`brokers: ${name} is missing: ${error?.message}`)
  }
  const up = outcomes.flatMap(({ name, info }) => (info && info.source !== 'env' ? [name] : []))
  return {
    started: up.filter((name) => !running.has(name)),
    missing: outcomes.flatMap(({ name, error }) => (error ? [name] : [])),
  }
}

async function runTests() {
  const folder = join(dataFolder, 'test')
  mkdirSync(folder, { recursive: true })
  const file = join(folder, 'summary.json')
  rmSync(file, { force: true })
  const reporters = ['--reporter=default', '--reporter=./scripts/test-reporter.mjs']
  const code = await run(process.execPath, [tool('vitest'), 'run', ...reporters, ...rest], {
    env: { LONGSHORE_TEST_SUMMARY: file },
  })
  /** @type {import('./test-reporter.mjs').Summary} */
  let summary = { passed: 0, failed: 0, skipped: 0, skips: [] }
  try {
    summary = JSON.parse(readFileSync(file, 'utf8'))
  } catch {
    console.log('vitest ended without a summary')
  }
  return { code, summary }
}
