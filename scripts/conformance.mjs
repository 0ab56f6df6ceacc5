// Runs the conformance kit against a driver, and writes the capability matrix: `npm run conformance -- --help`.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { bootstrap, root } from './bootstrap.mjs'

/** @typedef {import('@longshore/conformance').ConformanceTarget} ConformanceTarget */
/** @typedef {import('@longshore/conformance').Report} Report */

const targetsFolder = join(root, 'test', 'conformance', 'targets')
const reportsFolder = join(root, 'docs', 'conformance')
const matrixFile = join(root, 'docs', 'capabilities.md')

const usage = `Usage: npm run conformance -- --driver NAME [options]
       npm run conformance -- --list | --matrix

  --driver NAME     which driver (--list names them)
  --only ID,…       these checks; 'order' stands for all whose id begins with 'order.'
  --json FILE       write the report there ('docs': docs/conformance/NAME.json, for the matrix)
  --bail            stop after the first failure
  --concurrency N   checks beside each other (default 4)
  --list            list the drivers and the checks
  --matrix          write docs/capabilities.md from docs/conformance/*.json

Exit codes: 0 all passed or skipped, 1 a check failed, 2 wrong arguments, 3 the broker can't be had.`

/** @param {string} message @returns {never} */
function refuse(message) {
  console.error(`conformance: ${message}`)
  process.exit(2)
}

function readArguments() {
  try {
    return parseArgs({
      options: {
        driver: { type: 'string' },
        only: { type: 'string' },
        json: { type: 'string' },
        bail: { type: 'boolean', default: false },
        concurrency: { type: 'string', default: '4' },
        list: { type: 'boolean', default: false },
        matrix: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    }).values
  } catch (error) {
    return refuse(`${error instanceof Error ? error.message : error}\n\n${usage}`)
  }
}

const given = readArguments()
if (given.help) {
  console.log(usage)
  process.exit(0)
}
if (!given.driver && !given.list && !given.matrix) refuse(`which driver?\n\n${usage}`)
const concurrency = Number(given.concurrency)
if (!Number.isInteger(concurrency) || concurrency < 1) {
  refuse(`--concurrency is '${given.concurrency}'; give a whole number above 0`)
}

await bootstrap()
const kit = await import('@longshore/conformance')

/**
 * The targets: what each name stands for. Those of real brokers are files in test/conformance/targets; a file's default
 * export gets the broker launcher and returns the target.
 * @type {Record<string, () => Promise<ConformanceTarget>>}
 */
const targets = {
  memory: async () => kit.memoryTarget('conformance'),
  'memory-partitioned': async () =>
    kit.memoryTarget('conformance-partitioned', { partitions: 8, dedupeWindow: 60_000 }),
}
for (const file of existsSync(targetsFolder) ? readdirSync(targetsFolder) : []) {
  if (!file.endsWith('.mjs')) continue
  targets[file.slice(0, -'.mjs'.length)] = async () => {
    const [module, brokers] = await Promise.all([
      import(pathToFileURL(join(targetsFolder, file)).href),
      import('./brokers/index.mjs'),
    ])
    return module.default(brokers)
  }
}

if (given.list) list()
else if (given.matrix) writeMatrix()
else process.exitCode = await runDriver(String(given.driver))

function list() {
  console.log(`Drivers: ${Object.keys(targets).join(', ')}\n`)
  for (const { id, title, ref, noLoss } of kit.checks) {
    const number = ref > 0 ? `${ref}`.padStart(3) : '   '
    console.log(`${number} ${id.padEnd(38)} ${noLoss ? '[no loss] ' : ''}${title}`)
  }
}

/** @param {string} file @param {string} text */
function write(file, text) {
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, text)
}

function writeMatrix() {
  const files = existsSync(reportsFolder) ? readdirSync(reportsFolder) : []
  const reports = files
    .filter((file) => file.endsWith('.json'))
    .map((file) => JSON.parse(readFileSync(join(reportsFolder, file), 'utf8')))
  write(matrixFile, kit.formatMatrix(reports))
  console.log(`docs/capabilities.md: ${reports.length} drivers`)
}

/** @param {string} name @returns {Promise<number>} the exit code */
async function runDriver(name) {
  const make = targets[name]
  if (!make) refuse(`there is no driver '${name}'; known are: ${Object.keys(targets).join(', ')}`)
  const only = given.only?.split(',').map((id) => id.trim())
  try {
    kit.select(only, kit.checks)
  } catch (error) {
    refuse(`${error instanceof Error ? error.message : error}; --list shows them`)
  }
  /** @type {ConformanceTarget} */
  let target
  try {
    target = await make()
  } catch (error) {
    console.error(`conformance: the broker of '${name}' can't be had:`, error)
    return 3
  }
  const report = await kit
    .runConformance(target, {
      concurrency,
      bail: given.bail,
      ...(only ? { only } : {}),
      onResult: (result) => console.log(kit.formatResult(result)),
    })
    .finally(() => target.close?.())
  console.log(`\n${kit.formatSummary(report)}`)
  if (given.json) save(given.json, name, report)
  return report.failed > 0 ? 1 : 0
}

/** @param {string} where @param {string} name @param {Report} report */
function save(where, name, report) {
  const file = where === 'docs' ? join(reportsFolder, `${name}.json`) : resolve(where)
  if (where === 'docs' && given.only) refuse('a partial run is no report for the docs')
  write(file, `${JSON.stringify(where === 'docs' ? kit.forDocs(report) : report, null, 2)}\n`)
  console.log(`report: ${file}`)
}
