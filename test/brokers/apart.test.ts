import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, expect, test } from 'vitest'
import * as brokers from '../../scripts/brokers/index.mjs'
import { broker } from './support.js'

const kept = { ...process.env }
const data = mkdtempSync(join(tmpdir(), 'longshore-apart-'))

afterEach(() => {
  for (const name of ['LONGSHORE_DATA', 'LONGSHORE_DOWNLOADS']) delete process.env[name]
  Object.assign(process.env, kept)
})
afterAll(() => rmSync(data, { recursive: true, force: true }))

test('brokers set apart are others, and can be ended all at once', async (context) => {
  process.env.LONGSHORE_DATA = data
  const common = await broker('redis')
  if (!common) return context.skip('redis is not available')
  if (common.source === 'env') return context.skip('the server is the user’s own')
  try {
    brokers.setApart('one')
    const [apart] = await brokers.up(['redis'])
    expect(apart?.url).not.toBe(common.url)
    process.env.LONGSHORE_DATA = data
    expect(await brokers.downApart()).toEqual(['one'])
    expect(process.env.LONGSHORE_DATA).toBe(data)
    expect(await brokers.status(['redis'])).toMatchObject([{ state: 'up', url: common.url }])
    expect(await brokers.downApart()).toEqual([])
  } finally {
    process.env.LONGSHORE_DATA = data
    await brokers.down()
  }
}, 120_000)

test.each(['rabbitmq', 'rabbitmq@next'])(
  'the tool of %s talks to it',
  async (name) => {
    const info = await broker(name)
    if (!info || info.source === 'env') {
      const error = await brokers.tool(name, ['status']).catch((error) => error)
      return expect(error).toMatchObject({ code: expect.stringMatching(/^BROKER_/) })
    }
    const vhost = `tool-test-${process.pid}`
    const list = async () =>
      (await brokers.tool(name, ['-q', 'list_vhosts', 'name', '--no-table-headers'])).split('\n')
    await brokers.tool(name, ['add_vhost', vhost])
    expect(await list()).toContain(vhost)
    await brokers.tool(name, ['delete_vhost', vhost])
    expect(await list()).not.toContain(vhost)
    await expect(brokers.tool(name, ['delete_vhost', vhost])).rejects.toMatchObject({
      code: 'BROKER_TOOL_FAILED',
      details: expect.stringContaining(vhost),
    })
  },
  120_000,
)
