// Queues that refuse what is published to them because they are full: by a policy that leaves them no room, and a message
// that takes it.
import { randomUUID } from 'node:crypto'

/** @typedef {import('./rabbitmq-server.mjs').RabbitmqServer} RabbitmqServer */
/** @typedef {import('@longshore/conformance').Repair} Repair */
/** @typedef {import('amqplib').ConfirmChannel} ConfirmChannel */

const fillerType = 'longshore-filler'

/**
 * The dead letters of this group can't be stored.
 * @param {RabbitmqServer} server
 * @param {string} topic
 * @param {string} group
 */
export async function breakDeadLetters(server, topic, group) {
  const queue = `${topic}..${group}..dead`
  return fill(server, [queue], () => server.withChannel((channel) => removeFillers(channel, queue)))
}

/**
 * No delays can be stored, of any group: the delay queues are everybody's.
 * @param {RabbitmqServer} server
 * @param {() => Promise<import('@longshore/core').Bus>} connect
 */
export async function breakRetries(server, connect) {
  // The driver makes the queues of a level when it first needs it.
  const bus = await connect()
  await bus.publish(`filler-${randomUUID()}`, '', { delay: '10m' })
  await bus.close()
  const rows = await server.list('list_queues', '-p', server.vhost, 'name')
  const queues = rows
    .map(({ name = '' }) => name)
    .filter((name) => /^longshore\.\.delay\.\..*ms$/.test(name))
  // Nothing takes the fillers on from the delay queues, so they stay as long as the broker tries; nothing waits for them.
  return fill(server, queues, async () => {})
}

/**
 * @param {RabbitmqServer} server
 * @param {readonly string[]} queues
 * @param {() => Promise<void>} empty
 * @returns {Promise<Repair>}
 */
async function fill(server, queues, empty) {
  const policy = `full-${randomUUID()}`
  const pattern = `^(${queues.map((name) => name.replaceAll(/[.\\]/g, '\\$&')).join('|')})$`
  /** @param {number} length */
  const limit = async (length) => {
    const definition = JSON.stringify({ 'max-length': length, overflow: 'reject-publish' })
    const where = ['-p', server.vhost, '--apply-to', 'queues']
    await server.tool('set_policy', ...where, policy, pattern, definition)
  }
  await limit(0)
  await server.withChannel(async (channel) => {
    for (const queue of queues) while (await takes(channel, queue));
  })
  let broken = true
  return async () => {
    if (!broken) return
    broken = false
    // RabbitMQ 3.10 goes on refusing when the policy just goes: publishers must see the queue below its limit first.
    await limit(1_000_000)
    await empty()
    await server.tool('clear_policy', '-p', server.vhost, policy)
  }
}

/**
 * Publishes a filler; whether the queue took it.
 * @param {ConfirmChannel} channel
 * @param {string} queue
 * @returns {Promise<boolean>}
 */
function takes(channel, queue) {
  return new Promise((resolve) => {
    const options = { type: fillerType, persistent: true }
    channel.sendToQueue(queue, Buffer.from('filler'), options, (error) => resolve(!error))
  })
}

/**
 * @param {ConfirmChannel} channel
 * @param {string} queue
 */
async function removeFillers(channel, queue) {
  // What is not acked goes back to its place when the channel closes.
  for (;;) {
    const message = await channel.get(queue)
    if (!message) return
    if (message.properties.type === fillerType) channel.ack(message)
  }
}
