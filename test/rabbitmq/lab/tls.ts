import { connect, type Socket } from 'node:net'
import { createServer } from 'node:tls'
import type { Certificate } from './certificate.js'
import type { Lab } from './lab.js'

/** A server that speaks TLS and passes what it hears on to the broker. */
export async function tlsFront(lab: Lab, { key, cert }: Certificate) {
  const open = new Set<Socket>()
  const server = createServer({ key, cert }, (client) => {
    const broker = connect(lab.server.address.port, lab.server.address.host)
    client.pipe(broker).pipe(client)
    client.on('error', () => broker.destroy())
    broker.on('error', () => client.destroy())
    client.on('close', () => broker.destroy())
  })
  // Clients that refuse the certificate.
  server.on('tlsClientError', () => {})
  server.on('connection', (socket) => {
    open.add(socket)
    socket.on('close', () => open.delete(socket))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  lab.defer(async () => {
    for (const socket of open) socket.destroy()
    await new Promise((resolve) => server.close(resolve))
  })
  return { host: '127.0.0.1', port: (server.address() as { port: number }).port }
}
