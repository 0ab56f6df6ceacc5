import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { connect } from './connect.js'

describe('a driver that the application installed', () => {
  let app: string

  /** Installs a package in an application that the core itself can't see. */
  function install(name: string, source: string): void {
    const folder = join(app, 'node_modules', '@longshore', name)
    mkdirSync(folder, { recursive: true })
    const manifest = { name: `@longshore/${name}`, type: 'module', exports: './index.mjs' }
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest))
    writeFileSync(join(folder, 'index.mjs'), source)
  }

  beforeEach(() => {
    app = mkdtempSync(join(tmpdir(), 'longshore-app-'))
    writeFileSync(join(app, 'package.json'), '{}')
    vi.spyOn(process, 'cwd').mockReturnValue(app)
    vi.spyOn(process, 'argv', 'get').mockReturnValue([process.execPath])
  })

  afterEach(() => {
    vi.restoreAllMocks()
    rmSync(app, { recursive: true, force: true })
  })

  it('is found from the application, by the scheme of the URL', async () => {
    install(
      'kafka',
      `export const driver = {
        name: 'kafka', schemes: ['kafka'], options: ['brokers'],
        connect: async (config) => { throw new Error('asked for ' + config.url + JSON.stringify(config.options)) },
      }`,
    )
    await expect(connect('kafka://here')).rejects.toMatchObject({
      code: 'LONGSHORE_DRIVER',
      message: 'connecting to kafka: asked for kafka://here{}',
    })
    await expect(
      connect({ driver: 'kafka', options: { brokres: 'x' } as never }),
    ).rejects.toMatchObject({
      code: 'LONGSHORE_UNKNOWN_OPTION',
      message: expect.stringMatching(/driver 'kafka': there is no option 'brokres'; did you mean/),
    })
  })

  it('must export a driver', async () => {
    install('nats', 'export const something = 1')
    await expect(connect('nats://here')).rejects.toMatchObject({
      code: 'LONGSHORE_OPTION',
      message: expect.stringMatching(/@longshore\/nats is no Longshore driver: it must have name/),
    })
  })

  it('that fails when it is loaded is not called missing', async () => {
    install('redis', "throw new Error('the client needs Node 99')")
    await expect(connect('redis://here')).rejects.toThrow('the client needs Node 99')
    install('postgres', "import 'a-package-that-is-not-there'; export const driver = {}")
    await expect(connect('postgres://here')).rejects.toThrow(/a-package-that-is-not-there/)
  })

  it('is not asked for when memory is wanted', async () => {
    const bus = await connect('memory://')
    await bus.close()
  })
})
