import { type Bus, LongshoreError, PermanentError } from '@longshore/core'
import { expect, test } from 'vitest'
import { eventually } from '../brokers/support.js'
import { type Lab, onServers } from './lab/lab.js'

/** Dead letters in a queue that is read by taking everything out and giving it back. */
await onServers('dead-letters', (lab) => {
  test('keep their order through many readings, and through redriving', async () => {
    const { bus, topic, recover, seen } = await buried(lab, 250)
    const letters = bus.deadLetters(topic, 'g')
    const other = (await lab.connect()).deadLetters(topic, 'g')
    for (let round = 0; round < 3; round++) {
      expect(await numbers(letters.list())).toEqual(upTo(250))
      expect(await numbers(other.list({ limit: 7 }))).toEqual(upTo(7))
      expect(await letters.count()).toBe(250)
    }
    expect(await numbers(letters.list({ where: ({ id }) => id.endsWith('7') }))).toHaveLength(25)
    recover()
    expect(await letters.redrive({ limit: 120 })).toBe(120)
    expect(await other.redrive()).toBe(130)
    await eventually(() => seen.length === 250)
    expect(seen).toEqual(upTo(250))
  })

  test('that were chosen to be discarded are gone, and no others', async () => {
    const { bus, topic } = await buried(lab, 250)
    const letters = bus.deadLetters(topic, 'g')
    expect(await letters.discard({ where: () => true, limit: 120 })).toBe(120)
    const even = ({ id }: { id: string }) => Number(id.slice(3)) % 2 === 0
    expect(await letters.discard({ where: even })).toBe(65)
    expect(await numbers(letters.list())).toEqual(upTo(250).filter((n) => n > 120 && n % 2 === 1))
    expect(await letters.discard({ where: () => true })).toBe(65)
    expect(await letters.count()).toBe(0)
  })

  test('come back whole and in order when their reader is cut off in the midst of reading', async () => {
    const { bus, topic } = await buried(lab, 250)
    const letters = bus.deadLetters(topic, 'g')
    for (let round = 0; round < 3; round++) {
      const proxy = await lab.proxy()
      const reader = await lab.connect({ via: proxy })
      // Slow enough to be caught in the act.
      proxy.delay(2)
      const reading = numbers(reader.deadLetters(topic, 'g').list())
      const ended = reading.catch((error: unknown) => error)
      await eventually(async () => (await lab.count(`${topic}..g..dead`)) < 230)
      proxy.refuse()
      proxy.cut()
      expect(await ended).toBeInstanceOf(LongshoreError)
      await eventually(async () => (await lab.count(`${topic}..g..dead`)) === 250)
      expect(await numbers(letters.list())).toEqual(upTo(250))
    }
  })

  test('may be redriven and discarded one by one while they are listed', async () => {
    const { bus, topic, recover, seen } = await buried(lab, 50)
    recover()
    const letters = bus.deadLetters(topic, 'g')
    let n = 0
    for await (const { id } of letters.list()) {
      if (n++ % 2 === 0) expect(await letters.redrive({ id })).toBe(1)
      else expect(await letters.discard({ id })).toBe(1)
    }
    expect(n).toBe(50)
    expect(await letters.count()).toBe(0)
    await eventually(() => seen.length === 25)
    expect(seen).toEqual(upTo(50).filter((each) => each % 2 === 0))
  })

  test('a listing that is left early keeps nothing', async () => {
    const { bus, topic } = await buried(lab, 120)
    const letters = bus.deadLetters(topic, 'g')
    for await (const _ of letters.list()) break
    const iterator = letters.list()[Symbol.asyncIterator]()
    await iterator.next()
    // Not even while somebody still holds it.
    expect(await letters.count()).toBe(120)
    await iterator.return?.()
    expect(await numbers(letters.list())).toEqual(upTo(120))
  })
})

const upTo = (count: number) => Array.from({ length: count }, (_, n) => n)

async function numbers(letters: AsyncIterable<{ body: Uint8Array }>): Promise<number[]> {
  const all: number[] = []
  for await (const { body } of letters) all.push(Number(Buffer.from(body).toString()))
  return all
}

/** An ordered group that dead-lettered so many messages of one key, and handles them once it recovers. */
async function buried(lab: Lab, count: number) {
  const bus: Bus = await lab.connect()
  const topic = lab.unique('orders')
  const seen: number[] = []
  let failing = true
  const options = { group: 'g', order: 'key', onKeyFailure: 'skip' } as const
  await bus.subscribe<number>(topic, options, (n) => {
    if (failing) throw new PermanentError('not now')
    seen.push(n)
  })
  const entries = upTo(count).map((payload) => ({ payload, key: 'k', id: `id-${payload}` }))
  await bus.publishBatch(topic, entries)
  await eventually(async () => (await lab.count(`${topic}..g..dead`)) === count)
  return {
    bus,
    topic,
    seen,
    recover: () => {
      failing = false
    },
  }
}
