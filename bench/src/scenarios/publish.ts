import { Ledger, makerOf, payloadsOf, variety } from '../payloads.js'
import type { Payloads, Session, Target } from '../session.js'
import type { Load, Scenario } from './scenario.js'

type Text = Payloads['text']
type Send = (session: Session<Text>, payloads: readonly Text[], messages: number) => Promise<void>

const { read } = makerOf('text')
const lanes = 256
const batchSize = 500

/** One publish for each message, `lanes` of them waiting for their confirmation. */
const single: Send = async (session, payloads, messages) => {
  let seq = 0
  const lane = async () => {
    while (seq < messages) await session.publish(payloads[seq++ % variety]!)
  }
  await Promise.all(Array.from({ length: lanes }, lane))
}

const batches: Send = async (session, payloads, messages) => {
  for (let seq = 0; seq < messages; seq += batchSize) {
    const length = Math.min(batchSize, messages - seq)
    const entries = Array.from({ length }, (_, i) => ({ payload: payloads[(seq + i) % variety]! }))
    await session.publishBatch(entries)
  }
}

/** Confirmed messages per second into a paused group, which then handles them all to show that none is missing. */
async function rate(
  target: Target,
  { messages, patienceMs, now }: Load,
  send: Send,
): Promise<number> {
  const session = await target.open({ kind: 'text', concurrency: 64, order: 'none' })
  const payloads = payloadsOf('text')
  const ledger = new Ledger(messages, variety)
  await session.consume(async (payload) => {
    ledger.mark(read(payload))
  })
  session.pause()
  const start = now()
  await send(session, payloads, messages)
  const seconds = (now() - start) / 1000
  session.resume()
  await ledger.complete(patienceMs)
  await session.close()
  return messages / seconds
}

function scenario(name: string, send: Send): Scenario {
  return {
    name,
    metrics: [{ name, unit: 'messages/s' }],
    run: async (target, load) => [await rate(target, load, send)],
  }
}

export const publish: readonly Scenario[] = [
  scenario(`publish one by one, ${lanes} under way`, single),
  scenario(`publish batches of ${batchSize}`, batches),
]
