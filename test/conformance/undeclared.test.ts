// A driver that can do little must say so, and nothing of it may be ignored silently.
import {
  type ConformanceTarget,
  checks,
  memoryTarget,
  runConformance,
} from '@longshore/conformance'
import { type Capabilities, connect, memory } from '@longshore/core'
import type { DriverModule } from '@longshore/core/driver'
import { expect, test } from 'vitest'
import { overlay } from './mutants/wrap.js'

const able: Partial<Capabilities> = {
  order: 'none',
  replay: false,
  delay: 0,
  cancelDelay: false,
  deliveryCount: false,
  lease: false,
  priority: 0,
  ttl: false,
  routing: 'none',
  deadLetters: false,
  circuits: false,
  admin: false,
}

/** The memory driver, declaring and offering no more than it must. */
const bare: DriverModule = {
  name: 'bare',
  schemes: ['bare'],
  options: ['name'] as never,
  async connect(config) {
    const driver = await memory.connect(config)
    const capabilities = { ...driver.capabilities, ...able }
    const absent = { deadLetters: undefined, circuits: undefined, admin: undefined }
    return overlay(driver, { name: 'bare', capabilities, ...absent } as never)
  },
}

function bareTarget(): ConformanceTarget {
  const name = 'undeclared'
  const target = memoryTarget(name, {}, (options) =>
    connect({ driver: bare, options: { name }, ...options }),
  )
  return { ...target, driver: 'bare' }
}

test('what is not declared is refused, and the rest works', { timeout: 120_000 }, async () => {
  const report = await runConformance(bareTarget())
  const failed = report.checks.filter((check) => check.status === 'failed')
  expect(failed.map(({ id, reason }) => `${id}: ${reason}`)).toEqual([])
  const refusals = checks.filter((check) => check.area === 'unsupported')
  const passed = new Set(report.checks.flatMap((c) => (c.status === 'passed' ? [c.id] : [])))
  // Without order there is no circuit to ask for by 'park'.
  const due = refusals.filter((check) => check.id !== 'unsupported.park')
  expect(due.filter((check) => !passed.has(check.id)).map((check) => check.id)).toEqual([])
  const skipped = report.checks.filter((check) => check.status === 'skipped' && check.noLoss)
  expect(
    skipped.filter((check) => check.reason?.includes('declare')),
    'no-loss checks switched off by a capability',
  ).toEqual([])
})
