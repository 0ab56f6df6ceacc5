import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { TcpProxy } from './proxy.js'
import { until } from './until.js'

const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

/** A server that echoes, and a proxy in front of it. */
async function setUp(random?: () => number) {
  const sockets = new Set<Socket>()
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    socket.pipe(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  const proxy = await TcpProxy.start({ host: '127.0.0.1', port, ...(random ? { random } : {}) })
  cleanups.push(async () => {
    await proxy.close()
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { proxy, sockets }
}

interface Client {
  readonly socket: Socket
  readonly received: () => string
  readonly errors: string[]
  readonly closed: () => boolean
}

async function join(proxy: TcpProxy): Promise<Client> {
  const socket = connect(proxy.port, proxy.host)
  let received = ''
  let closed = false
  const errors: string[] = []
  socket.on('data', (chunk) => {
    received += chunk
  })
  socket.on('error', (error) => errors.push((error as NodeJS.ErrnoException).code ?? ''))
  socket.on('close', () => {
    closed = true
  })
  cleanups.push(() => socket.destroy())
  await once(socket, 'connect').catch(() => {})
  return { socket, received: () => received, errors, closed: () => closed }
}

test('passes bytes both ways, and the end of a stream', async () => {
  const { proxy } = await setUp()
  const client = await join(proxy)
  const big = 'x'.repeat(3_000_000)
  client.socket.end(big)
  await until(client.closed, { what: 'the echo to end' })
  expect(client.received()).toBe(big)
  expect(client.errors).toEqual([])
  await until(() => proxy.connections === 0, { what: 'the proxy to let go' })
})

test('cut resets what is open and takes new connections', async () => {
  const { proxy, sockets } = await setUp()
  const client = await join(proxy)
  client.socket.write('a')
  await until(() => client.received() === 'a', { what: 'the echo' })
  proxy.cut()
  await until(client.closed, { what: 'the connection to end' })
  expect(client.errors).toEqual(['ECONNRESET'])
  await until(() => sockets.size === 0, { what: "the server's side to end" })
  const next = await join(proxy)
  next.socket.write('b')
  await until(() => next.received() === 'b', { what: 'the echo on a new connection' })
})

test('swallow makes a connection half-open: no bytes, no end, no error', async () => {
  const { proxy } = await setUp()
  const client = await join(proxy)
  client.socket.write('a')
  await until(() => client.received() === 'a', { what: 'the echo' })
  proxy.swallow()
  client.socket.write('lost')
  const late = await join(proxy)
  late.socket.write('lost, too')
  await new Promise((resolve) => setTimeout(resolve, 100))
  expect([client.received(), late.received()]).toEqual(['a', ''])
  expect([client.closed(), late.closed()]).toEqual([false, false])
  proxy.restore()
  client.socket.write('b')
  await until(() => client.received() === 'ab', { what: 'bytes to pass again' })
})

test('while swallowing, the end of one side is hidden from the other', async () => {
  const { proxy, sockets } = await setUp()
  const client = await join(proxy)
  client.socket.write('a')
  await until(() => client.received() === 'a', { what: 'the echo' })
  proxy.swallow()
  for (const socket of sockets) socket.destroy()
  await new Promise((resolve) => setTimeout(resolve, 100))
  expect(client.closed()).toBe(false)
  proxy.cut()
  await until(client.closed, { what: 'the cut' })
})

test('swallow in one direction lets the other pass', async () => {
  const { proxy, sockets } = await setUp()
  const client = await join(proxy)
  client.socket.write('a')
  await until(() => client.received() === 'a', { what: 'the echo' })
  proxy.swallow('downstream')
  const seen: string[] = []
  for (const socket of sockets) socket.on('data', (chunk) => seen.push(String(chunk)))
  client.socket.write('b')
  await until(() => seen.includes('b'), { what: 'the server to get the bytes' })
  expect(client.received()).toBe('a')
})

test('delay holds every chunk back, in order', async () => {
  const { proxy } = await setUp()
  proxy.delay(60, 60)
  const client = await join(proxy)
  client.socket.setNoDelay(true)
  const begun = performance.now()
  for (const letter of 'abcdefgh') {
    client.socket.write(letter)
    await new Promise((resolve) => setImmediate(resolve))
  }
  await until(() => client.received().length === 8, { what: 'all letters' })
  expect(client.received()).toBe('abcdefgh')
  expect(performance.now() - begun).toBeGreaterThanOrEqual(115)
})

test('resetShare resets about so many connections', async () => {
  let at = 0
  const { proxy } = await setUp(() => [0.9, 0.9, 0.1][at++ % 3]!)
  const first = await join(proxy)
  proxy.resetShare(0.5)
  first.socket.write('a')
  await until(() => first.received() === 'a', { what: 'the echo of a chunk that passes' })
  first.socket.write('b')
  await until(first.closed, { what: 'the reset' })
  expect(first.received()).toBe('a')
  expect(first.errors).toEqual(['ECONNRESET'])
})

test('refuse turns new connections away and keeps the old ones', async () => {
  const { proxy } = await setUp()
  const old = await join(proxy)
  old.socket.write('a')
  await until(() => old.received() === 'a', { what: 'the echo' })
  proxy.refuse()
  const refused = await join(proxy)
  await until(refused.closed, { what: 'the refusal' })
  expect(proxy.accepted).toBe(2)
  old.socket.write('b')
  await until(() => old.received() === 'ab', { what: 'the old connection to go on' })
})
