import { availableParallelism, loadavg } from 'node:os'
import { fileURLToPath } from 'node:url'
import { measureAlone } from './alone.js'
import { type BringUp, type Broker, drivers } from './drivers.js'
import { longshore } from './longshore.js'
import { type Options, parseOptions, UsageError, usage } from './options.js'
import { profiled } from './profile.js'
import { table, writeFigures } from './report.js'
import { measure, type Plan, type Result } from './rounds.js'
import { choose } from './scenarios/choose.js'

const profileFolder = fileURLToPath(new URL('../../.longshore/profiles', import.meta.url))

/** The broker can't be had. */
class BrokerUnavailable extends Error {}

/** Runs the command line; resolves to the exit code: 1 a scenario failed, 2 wrong arguments, 3 the broker can't be had. */
export async function main(args: readonly string[], bringUp: BringUp): Promise<number> {
  try {
    const options = parseOptions(args)
    if (options.help) console.log(usage)
    else await bench(options, bringUp)
    return 0
  } catch (error) {
    if (error instanceof UsageError) console.error(`${error.message} (--help shows the options)`)
    else if (error instanceof BrokerUnavailable) console.error(error.message)
    else console.error(error)
    return error instanceof UsageError ? 2 : error instanceof BrokerUnavailable ? 3 : 1
  }
}

async function brokerOf(name: string, bringUp: BringUp): Promise<Broker> {
  try {
    return await bringUp(name)
  } catch (error) {
    const { message } = error as Error
    throw new BrokerUnavailable(`the broker '${name}' can't be had: ${message}`, { cause: error })
  }
}

async function bench(options: Options, bringUp: BringUp): Promise<void> {
  const { driver, rounds, self, profile, cpu } = options
  const known = drivers.get(driver)
  if (known === undefined) {
    throw new UsageError(`no driver '${driver}' here; there are: ${[...drivers.keys()].join(', ')}`)
  }
  const chosen = choose(known.scenarios, options.scenarios)
  // What else the machine did before: without that a figure means little.
  const load = Math.round((loadavg()[0] ?? 0) * 10) / 10
  const cores = availableParallelism()
  const broker = known.broker ? await brokerOf(driver, bringUp) : undefined
  const url = broker?.url ?? `${driver}://`
  const raw = known.raw(url)
  const messages = options.messages ?? known.messages
  const plan: Plan = {
    longshore: self ? known.raw(url) : longshore(url),
    raw,
    rounds,
    messages,
    cpu,
    ...(profile && { profile: (name, work) => profiled(profileFolder, name, work) }),
    progress: (text) => console.error(text),
  }
  const results: Result[] = []
  const own = ['--driver', driver, '--rounds', `${rounds}`, '--messages', `${messages}`]
  if (cpu) own.push('--cpu')
  if (profile) own.push('--profile')
  if (self) own.push('--self')
  const [only] = chosen.length === 1 ? chosen : []
  if (only !== undefined) results.push(...(await measure(only, plan)))
  else for (const { name } of chosen) results.push(...(await measureAlone(name, own)))

  if (broker !== undefined) console.log(`${broker.name} ${broker.version} (${broker.source})`)
  console.log(table(results, plan.longshore.name, raw.name))
  if (load > cores / 2 && !cpu) {
    console.log(
      `the machine was busy (load ${load} on ${cores} cores): the figures are too low, try --cpu`,
    )
  }
  if (profile) console.log(`profiles: ${profileFolder}`)
  if (options.json !== undefined) {
    const what = { driver, self, rounds, messages, cpu, load, cores }
    writeFigures(options.json, what, broker, raw, results)
  }
}
