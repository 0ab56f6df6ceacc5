import { PermanentError } from '@longshore/core'
import { expect, test } from 'vitest'
import { eventually } from '../brokers/support.js'
import { type Lab, nativeOf, onServers } from './lab/lab.js'

/** Programs that may use what exists, and create nothing. */
await onServers('least-privilege', (lab) => {
  test.each(['none', 'key'] as const)(
    'all works without configure permission on what exists: order %s',
    async (order) => {
      const { topic, login } = await prepared(lab, order)
      const bus = await lab.connect({ login, autoCreate: false })
      const seen: string[] = []
      const options = { group: 'g', order, retry: { attempts: 3, base: 100, jitter: 0 } } as const
      await bus.subscribe<string>(topic, options, (payload, { attempt }) => {
        seen.push(`${payload} ${attempt}`)
        if (payload === 'again' && attempt < 3) throw new Error('again')
        if (payload === 'never') throw new PermanentError('never')
      })
      await bus.publish(topic, 'at once', { key: 'a' })
      await bus.publish(topic, 'later', { key: 'b', delay: 200 })
      await bus.publish(topic, 'again', { key: 'c' })
      await bus.publish(topic, 'without key, later', { delay: 100 })
      await bus.publish(topic, 'never', { key: 'd', id: 'never' })
      const all = ['at once 1', 'later 1', 'without key, later 1', 'never 1']
      await eventually(() => seen.length >= all.length + 3)
      expect(seen.toSorted()).toEqual([...all, 'again 1', 'again 2', 'again 3'].toSorted())
      const letters = bus.deadLetters(topic, 'g')
      await eventually(async () => (await letters.count()) === 1)
      expect(await letters.redrive()).toBe(1)
      await eventually(() => seen.filter((one) => one === 'never 1').length === 2)
      expect(await lab.count('longshore..delay..lost')).toBe(0)
    },
  )

  test('retries with delays work for a group that skips failures, and for skipped keys', async () => {
    const { topic, login } = await prepared(lab, 'key')
    const bus = await lab.connect({ login, autoCreate: false })
    const seen: string[] = []
    const options = {
      group: 'g',
      order: 'key',
      onKeyFailure: 'skip',
      retry: { base: 100 },
    } as const
    await bus.subscribe<string>(topic, options, (payload, { attempt }) => {
      seen.push(`${payload} ${attempt}`)
      if (attempt === 1) throw new Error('again')
    })
    const keys = Array.from({ length: 20 }, (_, n) => `k${n}`)
    for (const key of keys) await bus.publish(topic, key, { key })
    await eventually(() => seen.length >= 40)
    expect(seen.toSorted()).toEqual(keys.flatMap((key) => [`${key} 1`, `${key} 2`]).toSorted())
    expect(await lab.count('longshore..delay..lost')).toBe(0)
  })
})

/** A topic with a group, made by somebody who may, and a user who may only use them. */
async function prepared(lab: Lab, order: 'none' | 'key') {
  const topic = lab.unique('orders')
  const owner = await lab.connect()
  await owner.admin.createGroup(topic, 'g', { order, from: 'latest' })
  await nativeOf(owner).createDelays()
  await owner.close()
  const login = await lab.limited({ configure: '^$' })
  return { topic, login }
}
