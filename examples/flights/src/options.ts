import { parseArgs } from 'node:util'

export const usage = `Streams the flights of 2001 through typed topics, and checks the result against a direct computation.

Usage: npm start -- [options]

  --url URL      broker to use, for instance nats://localhost:4222 (default memory://)
  --broker NAME  bring up this broker and use it: rabbitmq, nats, kafka, postgres or redis, or its
                 newer version, for instance rabbitmq@next
  --events N     how many flights (default 20000, the whole file; more starts over)
  --json FILE    write the figures to this file
  --help         show this`

export interface Options {
  readonly url: string | undefined
  readonly broker: string | undefined
  readonly events: number
  readonly json: string | undefined
  readonly help: boolean
}

/** The command line is wrong; the message says how. */
export class UsageError extends Error {}

export function parseOptions(args: readonly string[]): Options {
  const { url, broker, events, json, help } = parse(args)
  if (url !== undefined && broker !== undefined) {
    throw new UsageError('give --url or --broker, not both')
  }
  const count = Number(events)
  if (!Number.isInteger(count) || count < 1) {
    throw new UsageError(`--events is '${events}'; give a whole number from 1 on`)
  }
  return { url, broker, events: count, json, help }
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        url: { type: 'string' },
        broker: { type: 'string' },
        events: { type: 'string', default: '20000' },
        json: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    }).values
  } catch (error) {
    const { message } = error as Error
    throw new UsageError(message.split(/\. |\.?\n/)[0] ?? message, { cause: error })
  }
}
