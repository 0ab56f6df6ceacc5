import { createServer } from 'node:net'
import { BrokerError } from './errors.mjs'
import { BROKERS } from './names.mjs'
import { readState } from './state.mjs'

/** Ports handed out by this process, so that brokers started side by side get different ones. */
const given = new Set()

/** @param {number} port */
function isFree(port) {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      server.close(() => resolve(true))
    })
  })
}

/**
 * A free port below the range that outgoing connections take theirs from, so that it stays free
 * while its server restarts.
 */
async function choose() {
  const taken = new Set(BROKERS.flatMap((name) => Object.values(readState(name)?.ports ?? {})))
  for (let attempt = 0; attempt < 200; attempt++) {
    const port = 20_000 + Math.floor(Math.random() * 12_000)
    if (taken.has(port) || given.has(port) || !(await isFree(port))) continue
    given.add(port)
    return port
  }
  throw new BrokerError('BROKER_UNAVAILABLE', 'no free port on 127.0.0.1 from 20000 to 31999')
}

/**
 * Keeps the ports that a broker had, as far as nobody else has taken them meanwhile.
 * @param {readonly string[]} names
 * @param {Record<string, number>} before
 * @param {import('./types.mjs').Log} log
 */
export async function allotPorts(names, before, log) {
  /** @type {Record<string, number>} */
  const ports = {}
  for (const name of names) {
    const old = before[name]
    if (old !== undefined && (await isFree(old))) {
      ports[name] = old
      continue
    }
    ports[name] = await choose()
    if (old !== undefined) log(`port ${old} is taken by another process; now ${ports[name]}`)
  }
  return ports
}
