import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import ts from 'typescript'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runWorker, silentLogger } from './index.js'
import { createTestBus } from './testing/index.js'

const source = fileURLToPath(new URL('.', import.meta.url))
const logger = silentLogger

describe('runWorker in a process of its own', () => {
  let folder: string

  // Child processes can't run TypeScript on Node 20, so the sources are stripped of their types once.
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'longshore-worker-'))
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
    const compilerOptions: ts.CompilerOptions = {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      verbatimModuleSyntax: true,
    }
    for (const file of readdirSync(source, { recursive: true, encoding: 'utf8' })) {
      if (!file.endsWith('.ts') || /\.test(-d)?\.ts$/.test(file)) continue
      const to = join(folder, file.replace(/\.ts$/, '.js'))
      mkdirSync(dirname(to), { recursive: true })
      const text = readFileSync(join(source, file), 'utf8')
      writeFileSync(to, ts.transpileModule(text, { compilerOptions }).outputText)
    }
  })

  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  interface Run {
    readonly child: ChildProcess
    /** Resolves once the process has printed this. */
    printed(text: string): Promise<void>
    readonly ended: Promise<{ code: number | null; stdout: string; stderr: string }>
  }

  let runs = 0

  function run(body: string): Run {
    const file = join(folder, `program-${runs++}.mjs`)
    const index = pathToFileURL(join(folder, 'index.js')).href
    writeFileSync(
      file,
      `import { connect, runWorker } from ${JSON.stringify(index)}
       const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
       ${body}`,
    )
    const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'pipe'] })
    let stdout = ''
    let stderr = ''
    const waiters = new Set<() => void>()
    child.stdout.on('data', (chunk) => {
      stdout += chunk
      for (const look of waiters) look()
    })
    child.stderr.on('data', (chunk) => {
      stderr += chunk
    })
    const ended = new Promise<{ code: number | null; stdout: string; stderr: string }>(
      (resolve) => {
        child.on('close', (code) => resolve({ code, stdout, stderr }))
      },
    )
    const printed = (text: string) =>
      new Promise<void>((resolve, reject) => {
        const look = () => {
          if (stdout.includes(text)) resolve()
        }
        waiters.add(look)
        look()
        void ended.then(() => reject(new Error(`it ended without '${text}': ${stdout}${stderr}`)))
      })
    return { child, printed, ended }
  }

  it('drains on SIGTERM under load: exits with 0, finishes what runs, loses nothing', async () => {
    const { child, printed, ended } = run(`
      await runWorker(async () => {
        const bus = await connect('memory://')
        let started = 0, handled = 0, confirmed = 0, closing = false
        await bus.subscribe('orders', { group: 'g', concurrency: 20 }, async () => {
          started++
          await sleep(5)
          await bus.publish('done', 1)
          if (++handled === 200) console.log('under load')
        })
        const producing = (async () => {
          while (!closing) {
            const outcomes = await bus.publishBatch('orders', Array(50).fill({ payload: 1 }))
            confirmed += outcomes.filter(({ status }) => status === 'confirmed').length
            await sleep(1)
          }
        })()
        return {
          async close(options) {
            closing = true
            await producing
            const report = await bus.close(options)
            const { ready, inFlight, dead } = bus.native().broker.group('orders', 'g').stats()
            console.log(JSON.stringify({ started, handled, lost: confirmed - handled - ready, inFlight, dead }))
            return report
          },
        }
      })`)
    await printed('under load')
    child.kill('SIGTERM')
    const { code, stdout, stderr } = await ended
    expect(stderr).toBe('')
    expect(code).toBe(0)
    const result = JSON.parse(stdout.trim().split('\n').at(-1)!)
    expect(result).toMatchObject({ lost: 0, inFlight: 0, dead: 0 })
    expect(result.started).toBe(result.handled)
    expect(result.handled).toBeGreaterThanOrEqual(200)
  })

  it('exits with 0 on SIGINT when nothing runs', async () => {
    const { child, printed, ended } = run(`
      await runWorker(async () => {
        const bus = await connect('memory://')
        console.log('ready')
        return bus
      })`)
    await printed('ready')
    child.kill('SIGINT')
    expect(await ended).toMatchObject({ code: 0 })
  })

  it('exits with 1 at the deadline when a handler is stuck, and says so', async () => {
    const { child, printed, ended } = run(`
      await runWorker(async () => {
        const bus = await connect('memory://')
        await bus.subscribe('orders', { group: 'g' }, async () => {
          console.log('stuck')
          await new Promise(() => {})
        })
        await bus.publish('orders', 1)
        return bus
      }, { timeout: '200ms' })`)
    await printed('stuck')
    child.kill('SIGTERM')
    const { code, stderr } = await ended
    expect(code).toBe(1)
    expect(stderr).toMatch(/1 handlers were still running after 200 ms/)
  })

  it('ends at once, with 1, on a second signal; the same one passed on twice is one', async () => {
    const { child, printed, ended } = run(`
      await runWorker(async () => {
        const bus = await connect('memory://')
        await bus.subscribe('orders', { group: 'g' }, async ({}, { signal }) => {
          console.log('running')
          await new Promise(() => {})
        })
        await bus.publish('orders', {})
        return { close: (options) => (console.log('draining'), bus.close(options)) }
      }, { timeout: '1h' })`)
    await printed('running')
    child.kill('SIGTERM')
    child.kill('SIGTERM')
    await printed('draining')
    // An impatient user: the first that comes after half a second counts.
    const again = setInterval(() => child.kill('SIGTERM'), 50)
    const { code, stderr } = await ended
    clearInterval(again)
    expect(code).toBe(1)
    expect(stderr).toMatch(/SIGTERM again: ending without draining/)
  })

  it('says at once when start returns nothing to drain', async () => {
    const { ended } = run(`await runWorker(async () => {})`)
    const { code, stderr } = await ended
    expect(code).toBe(1)
    expect(stderr).toMatch(/start must return what is to be drained/)
  })

  it('fails with the error of start, which ends the process with a code other than 0', async () => {
    const { ended } = run(`await runWorker(async () => { throw new Error('no database') })`)
    const { code, stderr } = await ended
    expect(code).toBe(1)
    expect(stderr).toMatch(/no database/)
  })

  it('survives handler errors, and stays alive without any subscription', async () => {
    const { child, printed, ended } = run(`
      await runWorker(async () => {
        const bus = await connect('memory://', { logger: { debug() {}, info() {}, warn() {}, error() {} } })
        await bus.subscribe('orders', { group: 'g', retry: { attempts: 1 } }, (n) => {
          if (n === 0) throw undefined
          if (n === 1) return Promise.reject(null)
          console.log('alive')
        })
        for (const n of [0, 1, 2]) await bus.publish('orders', n)
        return bus
      })`)
    await printed('alive')
    child.kill('SIGTERM')
    expect(await ended).toMatchObject({ code: 0, stderr: '' })
  })

  it('does not lose a signal that comes while it starts', async () => {
    const { child, printed, ended } = run(`
      await runWorker(async () => {
        console.log('starting')
        await sleep(100)
        const bus = await connect('memory://')
        console.log('started')
        return bus
      })`)
    await printed('starting')
    child.kill('SIGTERM')
    const { code, stdout } = await ended
    expect(code).toBe(0)
    expect(stdout).toContain('started')
  })
})

describe('runWorker', () => {
  it('ends by its signal, and resolves to whether all was drained (exit: false)', async () => {
    const abort = new AbortController()
    await using bus = await createTestBus()
    const before = process.listenerCount('SIGTERM')
    const working = runWorker(async () => bus, { exit: false, signal: abort.signal, logger })
    await new Promise((resolve) => setImmediate(resolve))
    expect(process.listenerCount('SIGTERM')).toBe(before + 1)
    abort.abort()
    expect(await working).toBe(true)
    expect(process.listenerCount('SIGTERM')).toBe(before)
    expect(bus.health().status).toBe('down')
  })

  it('resolves to false when a handler is stuck, or draining fails', async () => {
    const signal = AbortSignal.abort()
    await using bus = await createTestBus()
    await bus.subscribe('orders', { group: 'g' }, () => new Promise(() => {}))
    await bus.publish('orders', 1)
    await bus.advance(0)
    const options = { exit: false, signal, logger, timeout: '5s' } as const
    expect(await runWorker(async () => bus, options)).toBe(false)
    const failing = { close: () => Promise.reject(new Error('no')) }
    expect(await runWorker(async () => failing, options)).toBe(false)
    const nothing = { close: async () => undefined }
    expect(await runWorker(async () => nothing, options)).toBe(true)
  })

  it('throws the error of start on, and listens no more', async () => {
    const before = process.listenerCount('SIGINT')
    const failing = async () => {
      throw new Error('no database')
    }
    await expect(runWorker(failing, { exit: false, logger })).rejects.toThrow('no database')
    expect(process.listenerCount('SIGINT')).toBe(before)
  })

  it('refuses unknown and wrong options', async () => {
    const start = async () => ({ close: async () => undefined })
    await expect(runWorker(start, { timout: 5 } as never)).rejects.toMatchObject({
      code: 'LONGSHORE_UNKNOWN_OPTION',
      message: expect.stringMatching(/runWorker: there is no option 'timout'; did you mean/),
    })
    await expect(runWorker(start, { timeout: 'x' as never })).rejects.toMatchObject({
      code: 'LONGSHORE_OPTION',
    })
  })
})
