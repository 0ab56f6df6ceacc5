import { writeFileSync } from 'node:fs'
import { availableParallelism, loadavg } from 'node:os'
import { fileURLToPath } from 'node:url'
import { measureAlone } from './alone.js'
import { longshore } from './longshore.js'
import { type Options, parseOptions, UsageError, usage } from './options.js'
import { profiled } from './profile.js'
import { memory } from './raw/memory.js'
import { table } from './report.js'
import { measure, type Plan, type Result } from './rounds.js'
import { scenarios } from './scenarios/index.js'
import type { RawClient } from './session.js'

/** A driver's bare client, and the URL where Longshore finds the same broker. */
const drivers: Readonly<Record<string, { readonly raw: RawClient; readonly url: string }>> = {
  memory: { raw: memory, url: 'memory://' },
}

const profileFolder = fileURLToPath(new URL('../../.longshore/profiles', import.meta.url))

async function main(args: readonly string[]): Promise<void> {
  const options = parseOptions(args)
  if (options.help) {
    console.log(usage)
    return
  }
  await bench(options)
}

async function bench({ driver, rounds, messages, json, profile, cpu, ...options }: Options) {
  const known = drivers[driver]
  if (known === undefined) {
    throw new UsageError(
      `no driver '${driver}' here; there are: ${Object.keys(drivers).join(', ')}`,
    )
  }
  const exact = scenarios.filter(({ name }) => options.scenarios.includes(name))
  const matching = scenarios.filter(
    ({ name, metrics }) =>
      options.scenarios.length === 0 ||
      options.scenarios.some((part) =>
        [name, ...metrics.map((metric) => metric.name)].some((text) => text.includes(part)),
      ),
  )
  const chosen = exact.length > 0 ? exact : matching
  if (chosen.length === 0) {
    const names = scenarios.map(({ name }) => `\n  ${name}`).join('')
    throw new UsageError(`no scenario has that in its name; there are:${names}`)
  }
  const plan: Plan = {
    longshore: longshore(known.url),
    raw: known.raw,
    rounds,
    messages,
    cpu,
    ...(profile && { profile: (name, work) => profiled(profileFolder, name, work) }),
    progress: (text) => console.error(text),
  }
  // What else the machine did before: without that a figure means little.
  const load = Math.round((loadavg()[0] ?? 0) * 10) / 10
  const cores = availableParallelism()
  const results: Result[] = []
  const own = ['--driver', driver, '--rounds', `${rounds}`, '--messages', `${messages}`]
  if (cpu) own.push('--cpu')
  if (profile) own.push('--profile')
  const [only] = chosen.length === 1 ? chosen : []
  if (only !== undefined) results.push(...(await measure(only, plan)))
  else for (const { name } of chosen) results.push(...(await measureAlone(name, own)))

  console.log(table(results, known.raw.name))
  if (load > cores / 2 && !cpu) {
    console.log(
      `the machine was busy (load ${load} on ${cores} cores): the figures are too low, try --cpu`,
    )
  }
  if (profile) console.log(`profiles: ${profileFolder}`)
  if (json !== undefined) {
    const figures = {
      driver,
      node: process.version,
      rounds,
      messages,
      cpu,
      load,
      cores,
      scenarios: results,
    }
    writeFileSync(json, `${JSON.stringify(figures, null, 2)}\n`)
  }
}

main(process.argv.slice(2)).catch((error: unknown) => {
  console.error(error instanceof UsageError ? `${error.message} (--help shows the options)` : error)
  process.exitCode = error instanceof UsageError ? 2 : 1
})
