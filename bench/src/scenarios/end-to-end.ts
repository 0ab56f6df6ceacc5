import { Ledger, makerOf } from '../payloads.js'
import type { Entry, Kind, Payloads, Settings, Target } from '../session.js'
import { breathe, type Load, type Scenario } from './scenario.js'

const batchSize = 250
/** As many may be under way before the publisher waits for the consumer. */
const window = 1000

/** Publish in batches, handle, ack: messages per second from the first publish to the last one handled. */
async function throughput<K extends Kind>(
  target: Target,
  settings: Settings<K>,
  { messages, patienceMs, now }: Load,
  keys: number,
): Promise<number> {
  const session = await target.open(settings)
  const { make, read } = makerOf(settings.kind)
  const ledger = new Ledger(messages)
  await session.consume(async (payload) => {
    ledger.mark(read(payload))
  })
  const start = now()
  for (let seq = 0; seq < messages; ) {
    const end = Math.min(messages, seq + batchSize)
    const entries: Entry<Payloads[K]>[] = []
    for (; seq < end; seq++) {
      const payload = make(seq)
      entries.push(keys > 0 ? { payload, key: `k${seq % keys}` } : { payload })
    }
    await session.publishBatch(entries)
    while (seq - ledger.handled > window) await breathe()
  }
  await ledger.complete(patienceMs)
  const seconds = (now() - start) / 1000
  await session.close()
  return messages / seconds
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
