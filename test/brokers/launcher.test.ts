import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import * as brokers from '../../scripts/brokers/index.mjs'
import { broker, eventually } from './support.js'

const SCRIPT = fileURLToPath(new URL('../../scripts/brokers.mjs', import.meta.url))

/** Data, state and processes of its own: other tests' brokers are not touched. The space is meant. */
const data = mkdtempSync(join(tmpdir(), 'longshore launcher-'))

const ENVIRONMENT = { LONGSHORE_DATA: data, LONGSHORE_BROKERS: 'native' }
const CLEARED = ['LONGSHORE_REDIS_URL', 'LONGSHORE_NATS_URL']

let available = false
const kept = { ...process.env }

beforeAll(async () => {
  Object.assign(process.env, ENVIRONMENT)
  for (const name of CLEARED) delete process.env[name]
  available = (await broker('redis')) !== undefined && (await broker('nats')) !== undefined
}, 300_000)

afterAll(async () => {
  await brokers.down()
  for (const name of [...Object.keys(ENVIRONMENT), ...CLEARED]) delete process.env[name]
  Object.assign(process.env, kept)
  rmSync(data, { recursive: true, force: true })
})

interface Result {
  code: number
  stdout: string
  stderr: string
}

function cli(args: string[], environment: Record<string, string> = {}): Promise<Result> {
  return new Promise((resolve) => {
    const env = { ...process.env, ...environment }
    execFile(process.execPath, [SCRIPT, ...args], { env }, (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr })
    })
  })
}

function statePath(name: string) {
  return join(data, 'brokers', name, 'state.json')
}

function pidOf(name: string): number {
  return JSON.parse(readFileSync(statePath(name), 'utf8')).process.pid
}

function runs(pid: number) {
  try {
    process.kill(pid, 0)
    return !readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z ')
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' && existsSync('/proc/self') === false
  }
}

async function withRedis<T>(url: string, use: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, { maxRetriesPerRequest: 0, retryStrategy: () => null })
  redis.on('error', () => {})
  try {
    return await use(redis)
  } finally {
    redis.disconnect()
  }
}

describe('command line', () => {
  test('explains itself', async () => {
    const { code, stdout } = await cli(['--help'])
    expect(code).toBe(0)
    expect(stdout).toContain('up [NAME…]')
    expect((await cli([])).code).toBe(2)
  })

  test.each([
    [['up', 'rabbit'], 'rabbitmq, nats, kafka, postgres, redis'],
    [['upp'], "no command 'upp'"],
    [['up', '--bogus'], '--bogus'],
    [['url'], 'give a name'],
    [['url', 'redis', 'nats'], 'one broker at a time'],
    [['logs', 'redis', '--lines', 'x'], '--lines'],
  ])('says what is wrong with %j and exits 2', async (args, message) => {
    const { code, stdout, stderr } = await cli(args)
    expect(stderr).toContain(message)
    expect(stdout).toBe('')
    expect(code).toBe(2)
  })

  test('fails with 1 on a bad LONGSHORE_BROKERS', async () => {
    const { code, stderr } = await cli(['up', 'redis'], { LONGSHORE_BROKERS: 'podman' })
    expect(stderr).toContain('set docker or native')
    expect(code).toBe(1)
  })
})

describe('a server of the user’s own', () => {
  test('is used as it is, and never started or ended', async (context) => {
    if (!available) return context.skip('no broker')
    const { url } = await brokers.start('redis')
    const own = { LONGSHORE_REDIS_URL: url, LONGSHORE_DATA: join(data, 'elsewhere') }
    const [info] = JSON.parse((await cli(['up', 'redis', '--json'], own)).stdout)
    expect(info).toMatchObject({ name: 'redis', url, source: 'env' })
    expect((await cli(['url', 'redis'], own)).stdout).toBe(`${url}\n`)
    for (const command of ['restart', 'pause', 'resume', 'stop', 'down']) {
      const { code, stderr } = await cli([command, 'redis'], own)
      expect(stderr).toContain('not managed')
      expect(code).toBe(1)
    }
    expect((await cli(['down'], own)).code).toBe(0)
    await withRedis(url, async (redis) => expect(await redis.ping()).toBe('PONG'))
  })

  test('that does not answer is an error that names the variable', async () => {
    const own = { LONGSHORE_NATS_URL: 'nats://127.0.0.1:1' }
    const { code, stderr } = await cli(['up', 'nats'], own)
    expect(stderr).toContain('LONGSHORE_NATS_URL')
    expect(code).toBe(1)
  }, 30_000)
})

describe('redis', () => {
  let url = ''
  beforeEach(async (context) => {
    if (!available) return context.skip('no broker')
    url = (await brokers.start('redis')).url
  })

  test('is told by url, alone on a line', async () => {
    expect(await cli(['url', 'redis'])).toEqual({ code: 0, stdout: `${url}\n`, stderr: '' })
  })

  test('is told by status', async () => {
    const [status] = await brokers.status(['redis'])
    expect(status).toMatchObject({ name: 'redis', state: 'up', source: 'native', url })
    expect(status).toMatchObject({ pid: pidOf('redis'), version: expect.stringMatching(/^\d/) })
  })

  test.each([false, true])('keeps URL and data over a restart, hard: %s', async (hard) => {
    const value = `kept-${hard}`
    await withRedis(url, async (redis) => {
      await redis.config('SET', 'appendfsync', 'always')
      await redis.set('key', value)
    })
    const before = pidOf('redis')
    expect((await brokers.restart('redis', { hard })).url).toBe(url)
    expect(pidOf('redis')).not.toBe(before)
    expect(runs(before)).toBe(false)
    await withRedis(url, async (redis) => expect(await redis.get('key')).toBe(value))
  })

  test('answers nothing while paused, and goes on afterwards', async () => {
    await withRedis(url, async (redis) => {
      await redis.ping()
      await brokers.pause('redis')
      expect(await brokers.status(['redis'])).toMatchObject([{ state: 'paused' }])
      let answered = false
      const ping = redis.ping().finally(() => {
        answered = true
      })
      // The probe's connection is accepted by the kernel, but nobody answers on it.
      await expect(withRedis(url, (other) => withDeadline(other.ping(), 300))).rejects.toThrow()
      expect(answered).toBe(false)
      await brokers.resume('redis')
      expect(await ping).toBe('PONG')
    })
  })

  test('is ended by down even while paused', async () => {
    await brokers.pause('redis')
    const pid = pidOf('redis')
    expect(await brokers.down(['redis'])).toEqual(['redis'])
    expect(runs(pid)).toBe(false)
    expect(await brokers.status(['redis'])).toMatchObject([{ state: 'down' }])
    expect((await cli(['url', 'redis'])).code).toBe(1)
  })

  test('that was killed is down, and comes up again with its URL', async () => {
    process.kill(pidOf('redis'), 'SIGKILL')
    await eventually(async () => (await brokers.status(['redis']))[0]?.state === 'down')
    expect((await brokers.up(['redis']))[0]?.url).toBe(url)
  })

  test('moves when somebody else has taken its port', async () => {
    await brokers.down(['redis'])
    const squatter = createServer().listen(Number(new URL(url).port), '127.0.0.1')
    await new Promise((resolve) => squatter.once('listening', resolve))
    try {
      const [info] = await brokers.up(['redis'])
      expect(info?.url).not.toBe(url)
    } finally {
      squatter.close()
    }
  })

  test('whose state file is lost is ended before another is started', async () => {
    const lost = pidOf('redis')
    rmSync(join(data, 'brokers', 'redis'), { recursive: true })
    await brokers.up(['redis'])
    expect(pidOf('redis')).not.toBe(lost)
    expect(runs(lost)).toBe(false)
  })

  test('is told that it is not running instead of being paused', async () => {
    await brokers.down(['redis'])
    await expect(brokers.pause('redis')).rejects.toMatchObject({ code: 'BROKER_NOT_RUNNING' })
  })
})

describe('processes', () => {
  test('two callers at once start one', async (context) => {
    if (!available) return context.skip('no broker')
    await brokers.down(['nats', 'redis'])
    const results = await Promise.all(
      Array.from({ length: 4 }, () => cli(['up', 'nats', 'redis', '--json'])),
    )
    expect(results.map(({ code }) => code)).toEqual([0, 0, 0, 0])
    expect(new Set(results.map(({ stdout }) => urls(stdout))).size).toBe(1)
    const marked = await eventually(() => marks('nats'))
    expect(marked).toEqual([pidOf('nats')])
  })

  test('of others are left alone, though a stale state file names one', async (context) => {
    if (!available) return context.skip('no broker')
    await brokers.down(['nats'])
    const foreign = sleeper()
    const state = JSON.parse(readFileSync(statePath('nats'), 'utf8'))
    state.process = { pid: foreign.pid, startTime: '12345' }
    writeFileSync(statePath('nats'), JSON.stringify(state))
    try {
      expect(await brokers.down(['nats'])).toEqual([])
      expect(foreign.exitCode ?? foreign.signalCode).toBeNull()
      await brokers.up(['nats'])
      expect(runs(foreign.pid ?? 0)).toBe(true)
    } finally {
      foreign.kill('SIGKILL')
    }
  })

  test('a lock left by a dead process is no obstacle', async (context) => {
    if (!available) return context.skip('no broker')
    const dead = sleeper()
    const ended = new Promise((resolve) => dead.once('exit', resolve))
    dead.kill('SIGKILL')
    await ended
    const lock = { pid: dead.pid, startTime: '1', token: 'dead' }
    writeFileSync(join(data, 'locks', 'nats'), JSON.stringify(lock))
    expect(await brokers.up(['nats'])).toHaveLength(1)
  })
})

test('of several brokers asked for, those that can be had come up', async (context) => {
  if (!available) return context.skip('no broker')
  process.env.LONGSHORE_KAFKA_URL = 'kafka://127.0.0.1:1'
  try {
    const outcomes = await brokers.upAll(['redis', 'kafka'], { signal: AbortSignal.timeout(1500) })
    expect(outcomes[0]?.info?.name).toBe('redis')
    expect(outcomes[1]?.error).toMatchObject({ code: 'BROKER_INTERRUPTED' })
  } finally {
    delete process.env.LONGSHORE_KAFKA_URL
  }
})

function urls(json: string) {
  return JSON.parse(json)
    .map(({ url }: { url: string }) => url)
    .join()
}

function sleeper(): ChildProcess {
  return spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' })
}

/** The processes that carry the launcher's mark for this data folder. */
async function marks(name: string) {
  const { findMarked } = await import('../../scripts/brokers/process.mjs')
  const { dataHash } = await import('../../scripts/brokers/paths.mjs')
  return findMarked('LONGSHORE_BROKER', `${dataHash()}/${name}`).map(({ pid }) => pid)
}

function withDeadline<T>(promise: Promise<T>, within: number): Promise<T> {
  promise.catch(() => {})
  const late = new Promise<never>((_, reject) => {
    setTimeout(() => reject(new Error(`no answer within ${within} ms`)), within)
  })
  return Promise.race([promise, late])
}
