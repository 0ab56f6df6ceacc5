import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import * as brokers from '../../scripts/brokers/index.mjs'

/**
 * No engine is needed: a stand-in for `docker` on PATH keeps the container's state in a file and
 * writes down how it was called; a stand-in for the server answers like Redis.
 */
const folder = mkdtempSync(join(tmpdir(), 'longshore-docker-'))
const calls = join(folder, 'calls')
const server = createServer((socket) => {
  const info = 'redis_version:7.0.99\r\n'
  socket.on('data', () => socket.write(`+PONG\r\n$${info.length}\r\n${info}\r\n`))
})
const kept = { ...process.env }
const changed = ['PATH', 'LONGSHORE_DATA', 'LONGSHORE_BROKERS', 'LONGSHORE_REDIS_URL']

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const port = typeof address === 'object' ? address?.port : undefined
  const fake = `#!${process.execPath}
const fs = require('node:fs')
const args = process.argv.slice(2)
const at = args.indexOf('next') + 1
const words = at > 0 ? args.slice(at) : args
const state = ${JSON.stringify(join(folder, 'state'))}
const now = fs.existsSync(state) ? fs.readFileSync(state, 'utf8') : ''
fs.appendFileSync(${JSON.stringify(calls)}, words.join(' ') + '\\n')
const next = { up: 'running', stop: 'exited', kill: 'exited', pause: 'paused', unpause: 'running' }
if (words[0] === 'info') console.log('27.0')
else if (words[0] === 'ps') {
  if (now) console.log(JSON.stringify({ State: now, Image: 'redis:7.0-alpine' }))
} else if (words[0] === 'port') console.log('127.0.0.1:${port}')
else if (next[words[0]]) fs.writeFileSync(state, next[words[0]])
else if (words[0] === 'logs') console.log('a line of the log')
`
  writeFileSync(join(folder, 'docker'), fake)
  chmodSync(join(folder, 'docker'), 0o755)
  process.env.PATH = `${folder}${delimiter}${process.env.PATH}`
  process.env.LONGSHORE_DATA = join(folder, 'data')
  process.env.LONGSHORE_BROKERS = 'docker'
  delete process.env.LONGSHORE_REDIS_URL
})

afterAll(() => {
  for (const name of changed) delete process.env[name]
  Object.assign(process.env, kept)
  server.close()
  rmSync(folder, { recursive: true, force: true })
})

test('a container is started, frozen, ended and asked through Compose', async () => {
  const [info] = await brokers.up(['redis'])
  expect(info).toMatchObject({ name: 'redis', source: 'docker', version: '7.0.99' })
  expect(await brokers.url('redis')).toBe(info?.url)
  expect((await brokers.up(['redis']))[0]?.url).toBe(info?.url)
  await brokers.pause('redis')
  expect(await brokers.status(['redis'])).toMatchObject([{ state: 'paused', source: 'docker' }])
  await brokers.resume('redis')
  expect(await brokers.logs('redis')).toBe('a line of the log')
  await expect(brokers.tool('redis', [])).rejects.toMatchObject({ code: 'BROKER_UNAVAILABLE' })
  expect(await brokers.tool('rabbitmq', ['list_vhosts'])).toBe('')
  expect(await brokers.restart('redis', { hard: true })).toMatchObject({ source: 'docker' })
  expect(await brokers.down(['redis'])).toEqual(['redis'])
  await expect(brokers.pause('redis')).rejects.toMatchObject({ code: 'BROKER_NOT_RUNNING' })
  const called = readFileSync(calls, 'utf8').split('\n')
  expect(called.filter((call) => !/^(info|compose version|ps|port|logs)/.test(call))).toEqual([
    'up -d --no-deps redis',
    'pause redis',
    'unpause redis',
    'exec -T rabbitmq rabbitmqctl list_vhosts',
    'kill redis',
    'up -d --no-deps redis',
    'stop redis',
    '',
  ])
})
