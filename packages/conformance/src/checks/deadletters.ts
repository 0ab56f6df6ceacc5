import { PermanentError, text, topic } from '@longshore/core'
import { check } from '../check.js'
import { ensure, same, sameBytes } from '../expect.js'
import type { Entry } from '../ledger.js'
import { all, bytes, numbered, quickRetry } from './shared.js'

const entry = (n: number): Entry => ({ producer: 'p', key: 'k', n })

export const deadletters = [
  check({
    id: 'settle.dead-letter',
    title:
      'Dead-lettered once, after exactly N attempts, whole, with reason, error, stack, attempts and origin',
    area: 'settle',
    ref: 25,
    noLoss: true,
    needs: { capabilities: ['deadLetters'] },
    async otherwise(ctx) {
      // They can't be looked at, but there must be exactly one.
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      let dead = 0
      ctx.defer(bus.on('dead-lettered', () => dead++))
      const options = { group: ctx.group(), retry: { ...quickRetry, attempts: 3 } }
      const { seen } = await ctx.collect(bus, to, options, ({ n }) => {
        if (n === 0) throw new Error('always')
      })
      await bus.publish(to, entry(0))
      await ctx.until(() => dead > 0, 'the message to be dead-lettered')
      await bus.publish(to, entry(1))
      await ctx.until(() => seen.some((one) => one.payload.n === 1), 'the message after it')
      same(seen.filter((one) => one.payload.n === 0).length, 3, 'attempts')
      same(dead, 1, 'dead letters')
    },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = topic<string>(ctx.topic(), { codec: text() })
      const group = ctx.group()
      const options = { group, retry: { ...quickRetry, attempts: 3 } }
      class CardDeclined extends Error {
        override name = 'CardDeclined'
      }
      const { seen } = await ctx.collect(bus, to, options, (payload) => {
        if (payload !== 'fine') throw new CardDeclined('no funds')
      })
      const before = Date.now()
      const payload = 'body \u{1F6A2} intact'
      const headers = { tenant: 'acme', 'X-Empty': '' }
      const sent = { headers, key: 'c7', correlationId: 'corr', causationId: 'cause' }
      const { id } = await bus.publish(to, payload, sent)
      const letters = bus.deadLetters(to.name, group)
      await ctx.until(async () => (await letters.count()) > 0, 'the dead letter')
      await bus.publish(to, 'fine')
      await ctx.until(() => seen.some((one) => one.payload === 'fine'), 'the message after it')
      const attempts = seen.filter((one) => one.payload === payload).map((one) => one.attempt)
      same(attempts, [1, 2, 3], 'attempts')
      const listed = await all(letters.list())
      same(listed.length, 1, 'dead letters')
      const letter = listed[0]!
      same(letter.id, id, 'id')
      same(letter.key, 'c7', 'key')
      sameBytes(letter.body, Buffer.from(payload), 'body')
      same({ ...letter.headers }, headers, 'headers')
      same(letter.contentType, to.codec.contentType, 'content type')
      same(letter.timestamp, seen[0]!.message.timestamp, 'timestamp')
      const { failure } = letter
      same(failure.reason, 'exhausted', 'reason')
      same(failure.errorName, 'CardDeclined', 'error name')
      same(failure.errorMessage, 'no funds', 'error message')
      ensure(failure.errorStack.includes('no funds'), `no stack: '${failure.errorStack}'`)
      same(failure.attempts, 3, 'attempts in the failure')
      same(failure.topic, to.name, 'topic in the failure')
      same(failure.group, group, 'group in the failure')
      const { firstFailedAt, lastFailedAt } = failure
      ensure(
        firstFailedAt >= before - 1 && firstFailedAt < lastFailedAt && lastFailedAt <= Date.now(),
        `failure times: first ${firstFailedAt}, last ${lastFailedAt}, published after ${before}`,
      )
      same((await letters.get(id))?.id, id, 'get(id)')
    },
  }),

  check({
    id: 'settle.permanent',
    title: 'A PermanentError skips the retries',
    area: 'settle',
    ref: 25,
    needs: { capabilities: ['deadLetters'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const { seen } = await ctx.collect(bus, to, { group, retry: quickRetry }, () => {
        throw new PermanentError('never')
      })
      await bus.publish(to, entry(0))
      const letters = bus.deadLetters(to.name, group)
      await ctx.until(async () => (await letters.count()) > 0, 'the dead letter')
      same(seen.length, 1, 'attempts')
      const [letter] = await all(letters.list())
      same(letter?.failure.reason, 'permanent', 'reason')
      same(letter?.failure.attempts, 1, 'attempts in the failure')
    },
  }),

  check({
    id: 'settle.undecodable',
    title: 'What the codec refuses is dead-lettered with its bytes, and the next message flows',
    area: 'settle',
    ref: 30,
    noLoss: true,
    needs: { capabilities: ['deadLetters'] },
    async otherwise(ctx) {
      const bus = await ctx.connect()
      const name = ctx.topic()
      const reasons: string[] = []
      ctx.defer(bus.on('dead-lettered', (event) => reasons.push(event.reason)))
      const { has } = await ctx.collect(bus, topic<Entry>(name), { group: ctx.group() })
      await bus.publish(bytes(name), Buffer.from('{"broken'))
      await bus.publish(topic<Entry>(name), entry(1))
      await has(1)
      await ctx.until(() => reasons.length > 0, 'the undecodable message to be dead-lettered')
      same(reasons, ['undecodable'], 'reasons')
    },
    async run(ctx) {
      const bus = await ctx.connect()
      const name = ctx.topic()
      const group = ctx.group()
      const { seen, has } = await ctx.collect(bus, topic<Entry>(name), { group })
      const broken = [Buffer.from('{"broken'), Buffer.from([0xff, 0xfe, 0x22]), Buffer.alloc(0)]
      for (const body of broken) await bus.publish(bytes(name), body)
      await bus.publish(topic<Entry>(name), entry(1))
      await has(1)
      same(seen[0]!.payload, entry(1), 'the message after them')
      const letters = bus.deadLetters(name, group)
      await ctx.until(
        async () => (await letters.count()) >= broken.length,
        `${broken.length} dead letters`,
      )
      const listed = await all(letters.list())
      same(listed.length, broken.length, 'dead letters')
      listed.forEach((letter, i) => {
        same(letter.failure.reason, 'undecodable', 'reason')
        same(letter.failure.attempts, 1, 'attempts')
        sameBytes(letter.body, broken[i]!, `body of dead letter ${i}`)
      })
      same(seen.length, 1, 'handler calls')
    },
  }),

  check({
    id: 'settle.invalid',
    title: 'What the schema refuses is dead-lettered, and the next message flows',
    area: 'settle',
    ref: 30,
    noLoss: true,
    needs: { capabilities: ['deadLetters'] },
    async otherwise(ctx) {
      const bus = await ctx.connect()
      const name = ctx.topic()
      const reasons: string[] = []
      ctx.defer(bus.on('dead-lettered', (event) => reasons.push(event.reason)))
      const strict = topic<Entry>(name, { schema: numbersFromOne })
      const { seen, has } = await ctx.collect(bus, strict, { group: ctx.group() })
      await bus.publish(topic<Entry>(name), entry(0))
      await bus.publish(topic<Entry>(name), entry(1))
      await has(1)
      await ctx.until(() => reasons.length > 0, 'the invalid message to be dead-lettered')
      same(reasons, ['invalid'], 'reasons')
      same(seen[0]!.payload.n, 1, 'the message after it')
    },
    async run(ctx) {
      const bus = await ctx.connect()
      const name = ctx.topic()
      const group = ctx.group()
      const strict = topic<Entry>(name, { schema: numbersFromOne })
      const { seen, has } = await ctx.collect(bus, strict, { group })
      await bus.publish(topic<Entry>(name), entry(0))
      await bus.publish(topic<Entry>(name), entry(1))
      await has(1)
      same(
        seen.map((one) => one.payload.n),
        [1],
        'messages that reached the handler',
      )
      const letters = bus.deadLetters(name, group)
      await ctx.until(async () => (await letters.count()) > 0, 'the dead letter')
      const [letter] = await all(letters.list())
      same(letter?.failure.reason, 'invalid', 'reason')
      same(JSON.parse(Buffer.from(letter!.body).toString()), entry(0), 'body')
    },
  }),

  check({
    id: 'settle.dead-letter-store-fails',
    title:
      "While the dead letter can't be stored the original stays unacked; it is stored when that works again",
    area: 'settle',
    ref: 33,
    noLoss: true,
    timeoutMs: 60_000,
    needs: { hooks: ['breakDeadLetters'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const first = await ctx.connect()
      const settleFailed = countOf(first, 'settle-failed')
      let healthy = false
      const handler = () => {
        if (!healthy) throw new PermanentError('never')
      }
      const before = await ctx.collect(first, to, { group, retry: quickRetry }, handler)
      const repair = await ctx.hooks.breakDeadLetters(to.name, group)
      ctx.defer(repair)
      await first.publish(to, entry(0))
      await ctx.until(
        () => settleFailed() > 0 || before.seen.length > 1,
        'the failed attempt to store the dead letter',
      )
      // This consumer gives up; the message must be there for the next.
      await first.close({ timeout: 300 })
      healthy = true
      const second = await ctx.connect()
      const after = await ctx.collect(second, to, { group, retry: quickRetry }, handler)
      await after.has(1, 45_000)
      same(after.seen[0]!.message.id, before.seen[0]!.message.id, 'id of what came back')

      healthy = false
      const again = countOf(second, 'settle-failed')
      await second.publish(to, entry(1))
      await ctx.until(
        () => again() > 0 || after.seen.filter((one) => one.payload.n === 1).length > 1,
        'the failed attempt to store the second dead letter',
      )
      await repair()
      if (ctx.capabilities.deadLetters) {
        const letters = second.deadLetters(to.name, group)
        await ctx.until(
          async () => (await letters.count()) > 0,
          'the dead letter after the repair',
          45_000,
        )
        const listed = await all(letters.list())
        same(
          listed.map((letter) => JSON.parse(Buffer.from(letter.body).toString()).n),
          [1],
          'dead letters',
        )
      }
    },
  }),

  check({
    id: 'settle.retry-store-fails',
    title:
      "While the retry can't be stored the original stays unacked; it is retried when that works again",
    area: 'settle',
    ref: 34,
    noLoss: true,
    schedule: 'alone',
    timeoutMs: 60_000,
    needs: { hooks: ['breakRetries'] },
    async run(ctx) {
      const to = numbered(ctx.topic())
      const group = ctx.group()
      const first = await ctx.connect()
      const settleFailed = countOf(first, 'settle-failed')
      const failing = () => {
        throw new Error('again')
      }
      const before = await ctx.collect(first, to, { group, retry: quickRetry }, failing)
      const repair = await ctx.hooks.breakRetries(to.name, group)
      ctx.defer(repair)
      await first.publish(to, entry(0))
      await ctx.until(
        () => settleFailed() > 0 || before.seen.length > 1,
        'the failed attempt to store the retry',
      )
      await first.close({ timeout: 300 })
      const second = await ctx.connect()
      const again = countOf(second, 'settle-failed')
      let failOnce = true
      const after = await ctx.collect(second, to, { group, retry: quickRetry }, () => {
        if (!failOnce) return
        failOnce = false
        throw new Error('once more')
      })
      await after.has(1, 45_000)
      same(after.seen[0]!.message.id, before.seen[0]!.message.id, 'id of what came back')
      await ctx.until(
        () => again() > 0 || after.seen.length > 1,
        'the second failed attempt to store the retry',
      )
      await repair()
      await after.has(2, 45_000)
      same(after.seen[1]!.message.id, before.seen[0]!.message.id, 'id after the repair')
    },
  }),
]

function countOf(
  bus: { on(event: 'settle-failed', listener: () => void): () => void },
  event: 'settle-failed',
): () => number {
  let count = 0
  bus.on(event, () => count++)
  return () => count
}

/** Refuses number 0. */
const numbersFromOne = {
  '~standard': {
    version: 1,
    vendor: 'longshore-conformance',
    validate: (value: unknown) =>
      (value as Entry).n > 0
        ? { value: value as Entry }
        : { issues: [{ message: 'must be above 0', path: ['n'] }] },
  },
} as const
