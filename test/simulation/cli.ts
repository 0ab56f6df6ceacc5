import { writeSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { runMany } from './many.js'
import { type Outcome, runSeed } from './run.js'

const usage = `Runs the core over the memory driver in virtual time, with faults chosen by seed.

  npm run simulate                     2,000 seeds
  npm run simulate -- --seeds N        N seeds
  npm run simulate -- --from S         beginning with seed S (default 1)
  npm run simulate -- --time SECONDS   as many seeds as fit
  npm run simulate -- --all            goes on after a failure, and counts them by rule
  npm run simulate -- --seed X         one seed; --trace prints all that happens
`

function whole(name: string, value: string | undefined, fallback: number): number {
  if (value === undefined) return fallback
  const n = Number(value)
  if (Number.isSafeInteger(n) && n >= 0) return n
  const text = `--${name} is '${value}'; it must be a whole number`
  throw Object.assign(new Error(text), { code: 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE' })
}

/** Resolves with the exit code. */
export async function main(args: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seeds: { type: 'string' },
      from: { type: 'string' },
      seed: { type: 'string' },
      time: { type: 'string' },
      trace: { type: 'boolean', default: false },
      all: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  if (values.help) {
    process.stdout.write(usage)
    return 0
  }
  if (values.seed !== undefined) return one(whole('seed', values.seed, 1), values.trace)
  return many(
    whole('from', values.from, 1),
    whole('seeds', values.seeds, values.time === undefined ? 2000 : Number.MAX_SAFE_INTEGER),
    whole('time', values.time, 0),
    values.all,
  )
}

async function one(seed: number, trace: boolean): Promise<number> {
  // At once, so that a run that doesn't end shows what it does.
  const onLine = (line: string) => void writeSync(1, `${line}\n`)
  const outcome = await runSeed(seed, { traced: true, ...(trace ? { onLine } : {}) })
  process.stdout.write(
    `seed ${seed} (${outcome.weather}): ${outcome.lines.length} events, trace ${outcome.hash}\n`,
  )
  if (outcome.violation === undefined) return 0
  process.stdout.write(`${explain(outcome, trace ? 0 : 40)}\n`)
  return 1
}

async function many(from: number, count: number, seconds: number, all: boolean): Promise<number> {
  const { stderr } = process
  const summary = await runMany({
    from,
    count,
    all,
    ...(seconds > 0 ? { seconds } : {}),
    onProgress: (runs) => {
      if (stderr.isTTY && runs % 200 === 0) stderr.write(`\r${runs} seeds`)
    },
  })
  if (stderr.isTTY) stderr.write('\r')
  const { runs, counts, weather, ms, failed } = summary
  const list = (of: Record<string, number>) =>
    Object.entries(of)
      .map(([name, n]) => `${n} ${name}`)
      .join(', ')
  process.stdout.write(
    `${runs} seeds in ${(ms / 1000).toFixed(1)} s (${Math.round((runs / ms) * 1000)}/s): ${list(weather)}; ${list(counts)}\n`,
  )
  const [first] = failed
  if (first === undefined) return 0
  if (all) process.stdout.write(byRule(failed))
  process.stdout.write(`${explain(await runSeed(first.seed, { traced: true }), 40)}\n`)
  return 1
}

function byRule(failed: readonly Outcome[]): string {
  const seeds = new Map<string, number[]>()
  for (const { seed, violation } of failed) {
    const rule = violation?.rule ?? ''
    seeds.set(rule, [...(seeds.get(rule) ?? []), seed])
  }
  return [...seeds]
    .map(([rule, some]) => `${some.length} broke '${rule}': seeds ${some.slice(0, 8).join(', ')}\n`)
    .join('')
}

/** What a failed seed says of itself. */
export function explain(outcome: Outcome, lines: number): string {
  const { seed, violation } = outcome
  return [
    ...(lines > 0 ? outcome.lines.slice(-lines) : []),
    '',
    `seed ${seed} broke the rule '${violation?.rule}': ${violation?.detail}`,
    `replay: npm run simulate -- --seed ${seed} --trace`,
  ].join('\n')
}
