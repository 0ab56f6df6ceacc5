import { describe, expect, it } from 'vitest'
import { type Logger, logging } from '../index.js'
import { createTestBus } from '../testing/index.js'

function recorder() {
  const lines: [string, string, Record<string, unknown> | undefined][] = []
  const at = (level: string) => (message: string, details?: Record<string, unknown>) =>
    void lines.push([level, message, details])
  const logger: Logger = {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
  }
  return { lines, logger }
}

describe('logging', () => {
  it('logs the start, end and failure of every attempt, with where it belongs', async () => {
    const { lines, logger } = recorder()
    await using bus = await createTestBus()
    const error = new Error('no')
    const options = { group: 'g', middleware: [logging(logger)] }
    await bus.subscribe('orders', options, (_, { attempt }) => {
      if (attempt === 1) throw error
    })
    const { id } = await bus.publish('orders', 1)
    await bus.handled()
    const about = { id, topic: 'orders', group: 'g' }
    const durationMs = expect.any(Number)
    expect(lines).toEqual([
      ['debug', 'handling', { ...about, attempt: 1 }],
      ['warn', 'failed', { ...about, attempt: 1, durationMs, error }],
      ['debug', 'handling', { ...about, attempt: 2 }],
      ['info', 'handled', { ...about, attempt: 2, durationMs }],
    ])
  })

  it('says nothing of failures when a batch is handed back at close', async () => {
    const { lines, logger } = recorder()
    await using bus = await createTestBus()
    const options = { group: 'g', batchSize: 5, batchWait: '1h', middleware: [logging(logger)] }
    await bus.subscribeBatch('orders', options as never, () => {})
    await bus.publish('orders', 1)
    await bus.advance(0)
    await bus.close()
    expect(lines.map(([level]) => level)).not.toContain('warn')
  })
})
