import {
  type Clock,
  NotFoundError,
  OutcomeUnknownError,
  PermanentError,
  systemClock,
} from '@longshore/core'
import { expect, test, vi } from 'vitest'
import { eventually } from '../brokers/support.js'
import { Bystander } from './lab/bystander.js'
import { refusal } from './lab/errors.js'
import { type Lab, nativeOf, onServers } from './lab/lab.js'
import { Log } from './lab/log.js'

/** What somebody deletes while it is in use. */
await onServers('deleted', (lab) => {
  exchanges(lab)
  queues(lab)
})

function exchanges(lab: Lab) {
  test('a deleted exchange is made again, with the bindings of subscriptions, before anything is published', async () => {
    const bus = await lab.connect()
    const bystander = await Bystander.on(bus)
    const topic = lab.unique('orders')
    const [plain, ordered]: string[][] = [[], []]
    const take = (seen: string[]) => (payload: string) => void seen.push(payload)
    await bus.subscribe<string>(topic, { group: 'g' }, take(plain!))
    await bus.subscribe<string>(topic, { group: 'o', order: 'key' }, take(ordered!))
    for (const round of ['a', 'b', 'c']) {
      await bus.publish(topic, `before ${round}`, { key: 'k' })
      await lab.channel((channel) => channel.deleteExchange(topic))
      await bus.publish(topic, round, { key: 'k' })
      await eventually(() => plain!.includes(round) && ordered!.includes(round), { within: 5000 })
    }
    const published = Array.from({ length: 20 }, (_, n) => ({ payload: `batch ${n}`, key: 'k' }))
    await lab.channel((channel) => channel.deleteExchange(topic))
    const outcomes = await bus.publishBatch(topic, published)
    expect(outcomes.map(({ status }) => status)).toEqual(published.map(() => 'confirmed'))
    await eventually(() => published.every(({ payload }) => ordered!.includes(payload)))
    await eventually(() => published.every(({ payload }) => plain!.includes(payload)))
    await bystander.unharmed()
  })

  test('without autoCreate a deleted exchange is a NotFoundError for each publish, until it is back', async () => {
    const owner = await lab.connect()
    const topic = lab.unique('orders')
    await owner.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
    const logger = new Log()
    const bus = await lab.connect({ autoCreate: false, logger })
    const seen: string[] = []
    await bus.subscribe<string>(topic, { group: 'g' }, (payload) => void seen.push(payload))
    await bus.publish(topic, 'before')
    await lab.channel((channel) => channel.deleteExchange(topic))
    for (const payload of ['first', 'second']) {
      await refusal(bus.publish(topic, payload), NotFoundError, `'${topic}'`, 'autoCreate: true')
    }
    const delayed = bus.publish(topic, 'delayed', { delay: 100 })
    await refusal(delayed, NotFoundError, `'${topic}'`)
    // The last of several that were under way surely was not taken; of those before it only the broker knows.
    await owner.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
    await bus.publish(topic, 'back')
    await lab.channel((channel) => channel.deleteExchange(topic))
    const outcomes = await bus.publishBatch(topic, [{ payload: 1 }, { payload: 2 }, { payload: 3 }])
    for (const { error } of outcomes.slice(0, -1) as { error: Error }[]) {
      expect(error).toBeInstanceOf(OutcomeUnknownError)
      expect(error.cause).toBeInstanceOf(NotFoundError)
    }
    expect(outcomes.at(-1)).toMatchObject({ status: 'failed', error: expect.any(NotFoundError) })
    expect(logger.lines.length).toBeLessThan(8)
    await eventually(() => seen.includes('back'))
    expect(seen).toEqual(['before', 'back'])
  })

  test('bindings deleted by others come back by themselves', async () => {
    // It looks every 15 s.
    const setTimer: Clock['setTimer'] = (work, ms, keep) =>
      systemClock.setTimer(work, ms >= 10_000 ? ms / 20 : ms, keep)
    const bus = await lab.connect({ clock: { ...systemClock, setTimer } })
    const topic = lab.unique('orders')
    const seen: number[] = []
    await bus.subscribe<number>(topic, { group: 'g' }, (payload) => void seen.push(payload))
    await lab.channel((channel) => channel.unbindQueue(`${topic}..g`, topic, '#'))
    let n = 0
    await eventually(async () => {
      await bus.publish(topic, ++n)
      return seen.length > 0
    })
  })
}

function queues(lab: Lab) {
  test.each(['none', 'key'] as const)(
    'a queue deleted live is made again, and the subscription goes on: order %s',
    async (order) => {
      const logger = new Log()
      const bus = await lab.connect({ logger })
      const bystander = await Bystander.on(bus)
      const topic = lab.unique('orders')
      const seen: number[] = []
      const options = { group: 'g', order, retry: { base: 50 } }
      const subscription = await bus.subscribe<number>(topic, options, (payload, { attempt }) => {
        if (payload === 0 && attempt === 1) throw new Error('later')
        seen.push(payload)
      })
      const deleted = (await lab.names('queues')).filter((name) => name.startsWith(`${topic}..`))
      await lab.channel(async (channel) => {
        for (const queue of deleted) await channel.deleteQueue(queue)
      })
      // What comes before all is back is lost with the queues, so again until one arrives.
      let n = 0
      await eventually(async () => {
        await bus.publish(topic, ++n, { key: 'k' })
        return seen.length > 0
      })
      const from = n + 1
      for (n = from; n < from + 10; n++) await bus.publish(topic, n, { key: 'k' })
      await bus.publish(topic, 0, { key: 'other' })
      await eventually(() => seen.includes(n - 1) && seen.includes(0))
      expect(subscription.state).toBe('running')
      expect(logger.lines.length).toBeLessThan(5)
      await bystander.unharmed()
      expect((await lab.names('queues')).sort()).toEqual(expect.arrayContaining(deleted.sort()))
    },
  )

  test('a queue that is deleted between being made and being consumed is made again', async () => {
    const bus = await lab.connect()
    const bystander = await Bystander.on(bus)
    const topic = lab.unique('orders')
    const model = nativeOf(bus).consuming!
    const { createChannel }: typeof model = Object.getPrototypeOf(model)
    let deletions = 0
    vi.spyOn(model, 'createChannel').mockImplementation(async () => {
      if (deletions < 4) {
        deletions++
        await lab.channel((channel) => channel.deleteQueue(`${topic}..g`))
      }
      return createChannel.call(model)
    })
    const seen: number[] = []
    await bus.subscribe<number>(topic, { group: 'g' }, (payload) => void seen.push(payload))
    expect(deletions).toBe(4)
    await bus.publish(topic, 1)
    await eventually(() => seen.length === 1)
    await bystander.unharmed()
  })

  test('without autoCreate a queue deleted live ends its subscription, typed, and no other', async () => {
    const owner = await lab.connect()
    const topic = lab.unique('orders')
    for (const group of ['g', 'other']) {
      await owner.admin.createGroup(topic, group, { order: 'none', from: 'latest' })
    }
    const bus = await lab.connect({ autoCreate: false })
    const seen: string[] = []
    const doomed = await bus.subscribe(topic, { group: 'g' }, () => {})
    await bus.subscribe<string>(topic, { group: 'other' }, (payload) => void seen.push(payload))
    await lab.channel((channel) => channel.deleteQueue(`${topic}..g`))
    await refusal(doomed.done, NotFoundError, `'${topic}..g'`, 'bus.admin', 'autoCreate: true')
    expect(doomed.state).toBe('failed')
    await bus.publish(topic, 'after')
    await eventually(() => seen.includes('after'))
    await refusal(
      bus.subscribe(topic, { group: 'g' }, () => {}),
      NotFoundError,
      `'${topic}..g'`,
    )
  })

  test('a deleted dead-letter queue is made again for the next dead letter', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    await bus.subscribe(topic, { group: 'g' }, () => {
      throw new PermanentError('never')
    })
    await lab.channel((channel) => channel.deleteQueue(`${topic}..g..dead`))
    await bus.publish(topic, 1, { id: 'one' })
    const letters = bus.deadLetters(topic, 'g')
    await eventually(() => letters.get('one'))
    expect(await letters.count()).toBe(1)
  })

  test('without autoCreate what should be dead-lettered stays until its queue is there', async () => {
    const owner = await lab.connect()
    const topic = lab.unique('orders')
    await owner.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
    const logger = new Log()
    const bus = await lab.connect({ autoCreate: false, logger })
    const bystander = await Bystander.on(owner)
    await bus.subscribe(topic, { group: 'g' }, () => {
      throw new PermanentError('never')
    })
    let failures = 0
    bus.on('settle-failed', () => failures++)
    await lab.channel((channel) => channel.deleteQueue(`${topic}..g..dead`))
    await bus.publish(topic, 1, { id: 'one' })
    await eventually(() => failures >= 3)
    await refusal(bus.deadLetters(topic, 'g').count(), NotFoundError, `${topic}..g..dead`)
    expect(logger.lines.length).toBeLessThanOrEqual(failures + 1)
    await owner.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
    await eventually(async () => (await bus.deadLetters(topic, 'g').count()) === 1)
    await bystander.unharmed()
  })

  test('a group that was deleted and is made anew gets the retries that were under way', async () => {
    const bus = await lab.connect()
    const topic = lab.unique('orders')
    const seen: string[] = []
    // Long enough for a busy machine to make the group anew.
    const retry = { attempts: 2, base: 6000, jitter: 0 }
    await bus.subscribe<string>(topic, { group: 'g', retry }, (payload, { attempt }) => {
      seen.push(`${payload} ${attempt}`)
      if (attempt === 1) throw new Error('later')
    })
    let retried = false
    bus.on('retried', () => {
      retried = true
    })
    await bus.publish(topic, 'one')
    await eventually(() => retried)
    await lab.channel((channel) => channel.deleteQueue(`${topic}..g`))
    await eventually(() => seen.length === 2)
    expect(seen).toEqual(['one 1', 'one 2'])
    expect(await lab.count('longshore..delay..lost')).toBe(0)
  })
}
