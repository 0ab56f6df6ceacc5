import type { DeadLetterAccess, StoredDeadLetter } from './core.js'
import { type Connection, type Mutant, overlay, plain } from './wrap.js'

/** The driver's dead letters, with some of their methods replaced. */
function access(
  change: (honest: DeadLetterAccess, connection: Connection) => Partial<DeadLetterAccess>,
) {
  return (connection: Connection) => {
    const honest = connection.driver.deadLetters!
    return { deadLetters: overlay(honest, change(honest, connection)) }
  }
}

/** Each letter as it would be if it had been stored so. */
function stored(alter: (letter: StoredDeadLetter) => readonly StoredDeadLetter[]) {
  return access((honest) => ({
    async *browse(topic, group) {
      for await (const letter of honest.browse(topic, group)) yield* alter(letter)
    },
  }))
}

function groupOf({ native }: Connection, topic: string, group: string) {
  const found = native.broker.topics.get(topic)?.group(group)
  if (!found) throw new Error(`no group ${group}`)
  return found
}

const empty = new Uint8Array(0)

export const deadLetters: readonly Mutant[] = [
  {
    name: 'acks what should be dead-lettered',
    claims: {
      'settle.dead-letter': /the dead letter/,
      'settle.permanent': /the dead letter/,
      'settle.undecodable': /3 dead letters/,
      'settle.invalid': /the dead letter/,
      'batch.throwing': /8 dead letters/,
      'order.park': /6 dead letters/,
      'order.park-across-members': /the first dead letter/,
      'order.block-dead-letter': /./,
    },
    changes: {
      subscription: ({ member }) => ({
        // The same for blocked keys: nothing behind the failing message may be lost either.
        async deadLetter(delivery) {
          if (delivery.message.key !== undefined && delivery.attempt > 1) return false
          return member.ack(delivery)
        },
      }),
    },
  },
  {
    name: 'keeps no body of a dead letter',
    claims: { 'settle.dead-letter': /body/, 'settle.undecodable': /body of dead letter/ },
    changes: {
      driver: stored((letter) => [{ ...letter, message: { ...letter.message, body: empty } }]),
    },
  },
  {
    name: 'keeps no headers of a dead letter',
    claims: { 'settle.dead-letter': /headers/ },
    changes: {
      driver: stored((letter) => [{ ...letter, message: { ...letter.message, headers: {} } }]),
    },
  },
  {
    name: 'keeps no reason and error of a dead letter',
    claims: { 'settle.dead-letter': /reason/, 'settle.invalid': /reason/ },
    changes: {
      subscription: ({ member }) => ({
        deadLetter: (delivery, failure) =>
          member.deadLetter(delivery, {
            ...failure,
            reason: 'requested',
            errorName: 'Error',
            errorStack: '',
          }),
      }),
    },
  },
  {
    name: 'dead-letters twice',
    claims: { 'settle.dead-letter': /dead letters: expected 1, saw 2/ },
    changes: { driver: stored((letter) => [letter, letter]) },
  },
  {
    name: 'acks when it could not store the dead letter',
    claims: { 'settle.dead-letter-store-fails': /waited|in vain/ },
    changes: {
      subscription: ({ member }) => ({
        async deadLetter(delivery, failure) {
          try {
            return await member.deadLetter(delivery, failure)
          } catch {
            return member.ack(delivery)
          }
        },
      }),
    },
  },
  {
    name: 'redrives to every group',
    claims: { 'redrive.group-only': /seen by the other group/ },
    changes: {
      driver: access((honest, { driver }) => ({
        async redrive(topic, group, selection) {
          const letters: StoredDeadLetter[] = []
          for await (const letter of honest.browse(topic, group)) letters.push(letter)
          for (const { message } of letters) {
            driver.publish([{ message, ...plain }], () => {})
          }
          await honest.discard(topic, group, selection)
          return letters.length
        },
      })),
    },
  },
  {
    name: 'removes dead letters before it sends them',
    claims: { 'redrive.killed-half-way': /a redriven message|different messages/ },
    changes: {
      driver: access((honest, connection) => ({
        async redrive(topic, group, selection) {
          const letters: StoredDeadLetter[] = []
          for await (const letter of honest.browse(topic, group)) letters.push(letter)
          await honest.discard(topic, group, selection)
          for (const { message } of letters) {
            await new Promise((resolve) => setImmediate(resolve))
            if (!connection.native.broker.connections.has(connection.driver as never)) break
            groupOf(connection, topic, group).add(message, 0, Number.POSITIVE_INFINITY)
          }
          return letters.length
        },
      })),
    },
  },
  {
    name: 'redrives the newest first',
    claims: { 'redrive.order': /seen/ },
    changes: {
      driver: access((honest, connection) => ({
        async redrive(topic, group, selection) {
          const letters: StoredDeadLetter[] = []
          for await (const letter of honest.browse(topic, group)) letters.unshift(letter)
          await honest.discard(topic, group, selection)
          for (const { message } of letters) {
            groupOf(connection, topic, group).add(message, 0, Number.POSITIVE_INFINITY)
          }
          return letters.length
        },
      })),
    },
  },
  {
    name: 'redrives all, whatever was chosen',
    claims: { 'redrive.selection': /redriven by id/ },
    changes: {
      driver: access((honest) => ({
        redrive: (topic, group) => honest.redrive(topic, group, {}),
      })),
    },
  },
  {
    name: 'leaves what it redrove among the dead letters',
    claims: { 'redrive.twice': /redriven/ },
    changes: {
      driver: access((honest, connection) => ({
        async redrive(topic, group) {
          let count = 0
          for await (const { message } of honest.browse(topic, group)) {
            groupOf(connection, topic, group).add(message, 0, Number.POSITIVE_INFINITY)
            count++
          }
          return count
        },
      })),
    },
  },
  {
    name: 'loses the body in a redrive',
    claims: { 'redrive.again': /dead letters/ },
    changes: {
      driver: access((honest, connection) => ({
        async redrive(topic, group, selection) {
          const letters: StoredDeadLetter[] = []
          for await (const letter of honest.browse(topic, group)) letters.push(letter)
          await honest.discard(topic, group, selection)
          for (const { message } of letters) {
            const cut = { ...message, body: Buffer.from('{}') }
            groupOf(connection, topic, group).add(cut, 0, Number.POSITIVE_INFINITY)
          }
          return letters.length
        },
      })),
    },
  },
  {
    name: 'discards nothing',
    claims: { 'redrive.discard': /the discarded one|redriven/ },
    changes: { driver: access(() => ({ discard: async () => 1 })) },
  },
]
