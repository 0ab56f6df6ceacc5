import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../until.js'
import { ConsumerProcess } from './consumer-process.js'

// A broker of lines: it sends a numbered entry to its one consumer and counts the acks.
const sockets = new Set<Socket>()
const acks: string[] = []
let server: Server
let folder: string
let program: string

beforeAll(async () => {
  server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    socket.on('data', (chunk) => acks.push(...String(chunk).trim().split('\n')))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  folder = mkdtempSync(join(tmpdir(), 'longshore-conformance-'))
  program = join(folder, 'target.mjs')
  writeFileSync(
    program,
    `import { connect } from 'node:net'
    import { createInterface } from 'node:readline'
    export default () => ({
      driver: 'lines',
      async connect() {
        const socket = connect(${port}, '127.0.0.1')
        return {
          async subscribe(topic, options, handler) {
            createInterface(socket).on('line', async (line) => {
              const payload = JSON.parse(line)
              await handler(payload, { attempt: 1, deliveries: 1, message: { id: 'id-' + payload.n } })
              socket.write('ack ' + payload.n + '\\n')
            })
          },
          async close() { socket.end() },
        }
      },
    })`,
  )
})

afterAll(() => {
  for (const socket of sockets) socket.destroy()
  server.close()
  rmSync(folder, { recursive: true })
})

const spec = { topic: 't', group: 'g', role: 'consume' } as const

function send(n: number): void {
  for (const socket of sockets) {
    socket.write(`${JSON.stringify({ producer: 'p', key: 'k', n })}\n`)
  }
}

async function start(behaviour: 'ack' | 'hold' | 'die') {
  const member = await ConsumerProcess.start({ program, spec: { ...spec, behaviour } })
  await until(() => sockets.size === 1, { what: 'its connection' })
  return member
}

test('reports what it handles, and stops on close', async () => {
  const member = await start('ack')
  send(1)
  await until(() => member.handled.length === 1, { what: 'a report' })
  const told = { producer: 'p', key: 'k', n: 1, id: 'id-1', attempt: 1, deliveries: 1 }
  expect(member.handled).toEqual([{ ...told, at: expect.any(Number) }])
  expect(member.started).toEqual([{ ...told, at: expect.any(Number) }])
  expect(member.started[0]!.at).toBeLessThanOrEqual(member.handled[0]!.at)
  await until(() => acks.includes('ack 1'), { what: 'the ack' })
  await member.close()
  expect(member.dead).toBe(true)
  await until(() => sockets.size === 0, { what: 'its connection to end' })
})

test('kill ends it in the middle of a handler', async () => {
  const member = await start('hold')
  send(2)
  await until(() => member.started.length === 1, { what: 'the handler' })
  await member.kill()
  expect(member.dead).toBe(true)
  expect(member.handled).toEqual([])
  await until(() => sockets.size === 0, { what: 'its connection to end' })
  expect(acks).not.toContain('ack 2')
})

test('stop makes it hang with its connection open, continue lets it go on', async () => {
  const member = await start('ack')
  member.stop()
  send(3)
  await new Promise((resolve) => setTimeout(resolve, 200))
  expect(member.started).toEqual([])
  expect(sockets.size).toBe(1)
  member.continue()
  await until(() => acks.includes('ack 3'), { what: 'the ack' })
  await member.kill()
})

test('a message can kill it, and what it reported before arrives', async () => {
  const member = await start('die')
  send(4)
  await until(() => member.dead, { what: 'its death' })
  expect(member.started.map((one) => one.n)).toEqual([4])
})

test('a target that does not load is an error that says why', async () => {
  const broken = join(folder, 'broken.mjs')
  writeFileSync(broken, `throw new Error('no such broker')`)
  await expect(ConsumerProcess.start({ program: broken, spec })).rejects.toThrow('no such broker')
})
