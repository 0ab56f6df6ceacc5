import { Ledger, makerOf, payloadsOf, variety } from '../payloads.js'
import { type Kind, type Settings, type Target, withSession } from '../session.js'
import type { Load, Scenario } from './scenario.js'
import { batchSize, inBatches, oneByOne, type Send, window } from './send.js'

/**
 * Publishes into a paused group, which then handles all, so that none is missing. Confirmed messages per second, and handled
 * ones per second of that backlog.
 */
export async function fillAndDrain<K extends Kind>(
  target: Target,
  settings: Settings<K>,
  { messages, patienceMs, now }: Load,
  send: Send,
  bytes?: number,
): Promise<readonly [published: number, handled: number]> {
  const { read } = makerOf(settings.kind, bytes)
  const payloads = payloadsOf(settings.kind, bytes)
  const ledger = new Ledger(messages, variety)
  return withSession(target, settings, async (session) => {
    await session.consume(async (payload) => {
      ledger.mark(read(payload))
    })
    await session.pause()
    const start = now()
    await send(session, payloads, messages)
    const full = now()
    await session.resume()
    await ledger.complete(patienceMs)
    const end = now()
    return [(messages * 1000) / (full - start), (messages * 1000) / (end - full)]
  })
}

const settings: Settings<'text'> = { kind: 'text', concurrency: 64, order: 'none' }

function scenario(name: string, send: Send): Scenario {
  return {
    name,
    metrics: [{ name, unit: 'messages/s' }],
    run: (target, load) => fillAndDrain(target, settings, load, send),
  }
}

export const publish: readonly Scenario[] = [
  scenario(`publish one by one, ${window} under way`, oneByOne),
  scenario(`publish batches of ${batchSize}`, inBatches),
]
