import { parseArgs } from 'node:util'

export const usage = `Measures Longshore against the bare client of a broker, in alternating rounds,
each scenario in a process of its own.

Usage: npm run bench -- [options]

  --driver NAME    memory (default), rabbitmq, rabbitmq@next; the broker is started if it is down
  --scenario TEXT  only those whose name contains this; may be given several times
  --rounds N       rounds after the warm-up (default 5); the figures are their medians
  --messages N     messages in each measurement of throughput (default: 1000000 for memory, 60000 for brokers)
  --cpu            throughput by CPU time, garbage collection included, instead of the clock: less
                   than one core really does, but steady on a busy machine
  --self           the bare client on both sides: what the figures differ by without any cause
  --json FILE      write the figures to this file
  --profile        write a .cpuprofile of Longshore's last round of each scenario to .longshore/profiles
  --help           show this`

/** The command line is wrong; the message says how. */
export class UsageError extends Error {}

export interface Options {
  readonly driver: string
  readonly scenarios: readonly string[]
  readonly rounds: number
  /** Undefined: as many as suit the driver. */
  readonly messages: number | undefined
  readonly json: string | undefined
  readonly profile: boolean
  readonly cpu: boolean
  readonly self: boolean
  readonly help: boolean
}

export function parseOptions(args: readonly string[]): Options {
  const { driver, scenario, rounds, messages, json, profile, cpu, self, help } = parse(args)
  return {
    driver,
    scenarios: scenario,
    rounds: whole('--rounds', rounds, 1000),
    // The payloads hold numbers of up to 24 bits.
    messages: messages === undefined ? undefined : whole('--messages', messages, 2 ** 24),
    json,
    profile,
    cpu,
    self,
    help,
  }
}

function whole(name: string, value: string, max: number): number {
  const number = Number(value)
  if (Number.isInteger(number) && number >= 1 && number <= max) return number
  throw new UsageError(`${name} is '${value}'; give a whole number from 1 to ${max}`)
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        driver: { type: 'string', default: 'memory' },
        scenario: { type: 'string', multiple: true, default: [] },
        rounds: { type: 'string', default: '5' },
        messages: { type: 'string' },
        json: { type: 'string' },
        cpu: { type: 'boolean', default: false },
        self: { type: 'boolean', default: false },
        profile: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    }).values
  } catch (error) {
    const { message } = error as Error
    throw new UsageError(message.split(/\. |\.?\n/)[0] ?? message, { cause: error })
  }
}
