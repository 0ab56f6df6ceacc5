import { type Codec, topic } from '@longshore/core'
import { check } from '../check.js'
import { ensure, same, sameBytes } from '../expect.js'
import { bytes } from './shared.js'

/** JSON by name, but the bytes are given: to see whether anybody touches them. */
const rawJson: Codec<Uint8Array> = {
  contentType: 'application/json',
  encode: (body) => new Uint8Array(body),
  decode: (body) => new Uint8Array(body),
}

export const fidelity = [
  check({
    id: 'fidelity.round-trip',
    title: '100 messages keep id, bytes, headers, key, content type, timestamp and relations',
    area: 'fidelity',
    ref: 1,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = bytes(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group(), concurrency: 10 })
      const before = Date.now()
      const sent = Array.from({ length: 100 }, (_, n) => ({
        payload: Buffer.from(`body ${n} \u{1F6A2}`),
        id: `${ctx.runId}-id-${n}`,
        key: `key-${n % 7}`,
        headers: { tenant: `t${n}`, 'X-Kind': 'Round-Trip' },
        correlationId: `correlation-${n}`,
        causationId: `cause-${n}`,
      }))
      const outcomes = await bus.publishBatch(to, sent)
      same(
        outcomes.map((o) => o.status),
        sent.map(() => 'confirmed'),
        'outcomes of the batch',
      )
      const after = Date.now()
      await has(100)
      const byId = new Map(seen.map((one) => [one.message.id, one]))
      same(byId.size, 100, 'different ids seen')
      for (const expected of sent) {
        const one = byId.get(expected.id)
        ensure(one !== undefined, `message ${expected.id} was not seen`)
        const { message } = one
        sameBytes(one.payload, expected.payload, `body of ${message.id}`)
        same({ ...message.headers }, expected.headers, `headers of ${message.id}`)
        same(message.key, expected.key, `key of ${message.id}`)
        same(message.topic, to.name, `topic of ${message.id}`)
        same(message.contentType, to.codec.contentType, `content type of ${message.id}`)
        same(message.correlationId, expected.correlationId, `correlation of ${message.id}`)
        same(message.causationId, expected.causationId, `causation of ${message.id}`)
        const { timestamp } = message
        ensure(
          timestamp >= before && timestamp <= after,
          `timestamp of ${message.id}: expected ${before} to ${after}, saw ${timestamp}`,
        )
        same(one.attempt, 1, `attempt of ${message.id}`)
      }
    },
  }),

  check({
    id: 'fidelity.absent-metadata',
    title: 'A message without key, headers and relations arrives without them',
    area: 'fidelity',
    ref: 1,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = topic<string>(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      const { id } = await bus.publish(to, 'plain')
      await has(1)
      const message = seen[0]!.message
      same(message.id, id, 'id')
      same(message.key, undefined, 'key')
      same({ ...message.headers }, {}, 'headers')
      same(message.correlationId, undefined, 'correlation id')
      same(message.causationId, undefined, 'causation id')
    },
  }),

  check({
    id: 'fidelity.empty-body',
    title: 'A zero-byte payload stays empty',
    area: 'fidelity',
    ref: 2,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = bytes(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      await bus.publish(to, new Uint8Array(0))
      await has(1)
      same(seen[0]!.payload.length, 0, 'length of the body')
    },
  }),

  check({
    id: 'fidelity.all-bytes',
    title: 'All 256 byte values survive',
    area: 'fidelity',
    ref: 3,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = bytes(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      const body = Uint8Array.from({ length: 512 }, (_, i) => (i < 256 ? i : 511 - i))
      await bus.publish(to, body)
      await has(1)
      sameBytes(seen[0]!.payload, body, 'body')
    },
  }),

  check({
    id: 'fidelity.max-body',
    title: 'A payload of the declared maximum less 1 KiB survives',
    area: 'fidelity',
    ref: 4,
    timeoutMs: 60_000,
    async run(ctx) {
      const size = Math.min(ctx.capabilities.maxBytes, ctx.tolerances.largestBody) - 1024
      const bus = await ctx.connect()
      const to = bytes(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      const body = new Uint8Array(size)
      for (let at = 0; at < size; at += 4093) body[at] = at % 251
      await bus.publish(to, body)
      await has(1, 30_000)
      sameBytes(seen[0]!.payload, body, 'body')
      ctx.count({ bytes: size })
    },
  }),

  check({
    id: 'publish.oversize',
    title: 'A payload over the maximum is a TooLargeError, and the connection stays usable',
    area: 'fidelity',
    ref: 5,
    timeoutMs: 60_000,
    async run(ctx) {
      const { maxBytes } = ctx.capabilities
      if (maxBytes > ctx.tolerances.largestBody) {
        ctx.skip(`the declared maximum of ${maxBytes} bytes is more than the check may allocate`)
      }
      const bus = await ctx.connect()
      const to = bytes(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      const [outcome] = await bus.publishBatch(to, [{ payload: new Uint8Array(maxBytes + 1) }])
      same(outcome?.status, 'failed', 'outcome of the message that is too large')
      same(
        outcome?.status !== 'confirmed' && outcome?.error.code,
        'LONGSHORE_TOO_LARGE',
        'its error code',
      )
      await bus.publish(to, Buffer.from('small'))
      await has(1)
      same(Buffer.from(seen[0]!.payload).toString(), 'small', 'the message after it')
    },
  }),

  check({
    id: 'fidelity.json-bytes',
    title: 'JSON bytes are not re-serialised',
    area: 'fidelity',
    ref: 10,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = topic<Uint8Array>(ctx.topic(), { codec: rawJson })
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      const body = Buffer.from(
        '{ "b" : 1.0,\n\t"a":1e2, "b":"\\u00e9", "big":12345678901234567890 }',
      )
      await bus.publish(to, body)
      await has(1)
      sameBytes(seen[0]!.payload, body, 'body')
      same(seen[0]!.message.contentType, 'application/json', 'content type')
    },
  }),
]
