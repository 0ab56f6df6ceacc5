// What the relay's two ends say to each other: JSON, one message a line.
import { createInterface } from 'node:readline'

/** @typedef {import('@longshore/core/driver').WireMessage} WireMessage */

/** Silence for so long means that the other end is gone. */
const silenceMs = 2500
export const pingMs = 300

export const password = 'secret'

/** @param {WireMessage} message */
export function pack(message) {
  return { ...message, body: Buffer.from(message.body).toString('base64') }
}

/** @param {any} packed @returns {WireMessage} */
export function unpack(packed) {
  const { id, topic, key, body, headers, contentType, timestamp, correlationId, causationId } =
    packed
  return {
    id,
    topic,
    key,
    body: Buffer.from(body, 'base64'),
    headers,
    contentType,
    timestamp,
    correlationId,
    causationId,
  }
}

/**
 * Sends and receives, and destroys the socket when the other end is silent for too long.
 * @param {import('node:net').Socket} socket
 * @param {(line: any) => void} receive
 * @param {number} [silence] milliseconds
 */
export function talk(socket, receive, silence = silenceMs) {
  socket.setNoDelay(true)
  // Not by the socket's own timeout: what this end writes would count as a sign of life.
  let heard = Date.now()
  const watch = setInterval(() => {
    if (Date.now() - heard > silence) socket.destroy()
  }, pingMs)
  socket.on('data', () => {
    heard = Date.now()
  })
  socket.on('close', () => clearInterval(watch))
  socket.on('error', () => {})
  const lines = createInterface(socket)
  lines.on('line', (line) => receive(JSON.parse(line)))
  lines.on('error', () => {})
  return (/** @type {object} */ message) => {
    if (!socket.destroyed) socket.write(`${JSON.stringify(message)}\n`)
  }
}
