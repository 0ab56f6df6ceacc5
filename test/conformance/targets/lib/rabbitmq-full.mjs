// A queue that refuses what is published to it because it is full: by a policy that leaves it no room, and a message that
// takes it.
import { randomUUID } from 'node:crypto'

/** @typedef {import('./rabbitmq-server.mjs').RabbitmqServer} RabbitmqServer */
/** @typedef {import('amqplib').ConfirmChannel} ConfirmChannel */

const fillerType = 'longshore-filler'

/**
 * @param {RabbitmqServer} server
 * @param {string} queue
 * @returns {Promise<import('@longshore/conformance').Repair>}
 */
export async function fillQueue(server, queue) {
  const policy = `full-${randomUUID()}`
  const pattern = `^${queue.replaceAll(/[.\\]/g, '\\$&')}$`
  /** @param {number} length */
  const limit = async (length) => {
    const definition = JSON.stringify({ 'max-length': length, overflow: 'reject-publish' })
    const where = ['-p', server.vhost, '--apply-to', 'queues']
    await server.tool('set_policy', ...where, policy, pattern, definition)
  }
  await limit(0)
  await server.withChannel(async (channel) => {
    while (await takesFiller(channel, queue));
  })
  let broken = true
  return async () => {
    if (!broken) return
    broken = false
    // RabbitMQ 3.10 goes on refusing when the policy just goes: publishers must see the queue below its limit first.
    await limit(1_000_000)
    await server.withChannel((channel) => removeFillers(channel, queue))
    await server.tool('clear_policy', '-p', server.vhost, policy)
  }
}

/**
 * Publishes a filler; whether the queue took it.
 * @param {ConfirmChannel} channel
 * @param {string} queue
 * @returns {Promise<boolean>}
 */
function takesFiller(channel, queue) {
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
