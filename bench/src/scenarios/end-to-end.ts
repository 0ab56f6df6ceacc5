import { Ledger, makerOf, payloadsOf, variety } from '../payloads.js'
import { type Kind, type Settings, type Target, withSession } from '../session.js'
import type { Load, Scenario } from './scenario.js'

/** Publishes that are awaited together. */
const chunk = 128
/** As many may be under way before the publisher waits for the consumer. */
const window = 256

/** Publish, handle, ack: messages per second from the first publish to the last one handled. */
async function throughput<K extends Kind>(
  target: Target,
  settings: Settings<K>,
  { messages, patienceMs, now }: Load,
  keys: number,
): Promise<number> {
  const { read } = makerOf(settings.kind)
  const payloads = payloadsOf(settings.kind)
  const names = Array.from({ length: keys }, (_, i) => `k${i}`)
  const ledger = new Ledger(messages, variety)
  return withSession(target, settings, async (session) => {
    await session.consume(async (payload) => {
      ledger.mark(read(payload))
    })
    const start = now()
    for (let seq = 0; seq < messages; ) {
      const end = Math.min(messages, seq + chunk)
      const confirmations: Promise<unknown>[] = []
      for (; seq < end; seq++) {
        confirmations.push(session.publish(payloads[seq % variety]!, names[seq % keys]))
      }
      await Promise.all(confirmations)
      await ledger.reach(seq - window)
    }
    await ledger.complete(patienceMs)
    return (messages * 1000) / (now() - start)
  })
}

function scenario(name: string, settings: Settings, keys = 0): Scenario {
  return {
    name,
    metrics: [{ name, unit: 'messages/s' }],
    run: async (target, load) => [await throughput(target, settings, load, keys)],
  }
}

export const endToEnd: readonly Scenario[] = [
  scenario('end-to-end text 256 B, concurrency 1', { kind: 'text', concurrency: 1, order: 'none' }),
  scenario('end-to-end text 256 B, concurrency 64', {
    kind: 'text',
    concurrency: 64,
    order: 'none',
  }),
  scenario('end-to-end binary 256 B, concurrency 64', {
    kind: 'binary',
    concurrency: 64,
    order: 'none',
  }),
  scenario('end-to-end JSON, concurrency 1', { kind: 'json', concurrency: 1, order: 'none' }),
  scenario('end-to-end JSON, concurrency 64', { kind: 'json', concurrency: 64, order: 'none' }),
  scenario(
    'end-to-end text 256 B, 64 keys in order',
    { kind: 'text', concurrency: 64, order: 'key' },
    64,
  ),
]
