// A driver with a broker on TCP, as a third party would write it: here the kit's proxy and processes do their work.
import {
  type ConformanceTarget,
  checks,
  examine,
  memoryTarget,
  type Report,
  runCheck,
} from '@longshore/conformance'
import { conformance } from '@longshore/conformance/vitest'
import type { BusOptions } from '@longshore/core'
import { afterAll, describe, expect, test } from 'vitest'
import { startRelay } from './relay/server.mjs'
import { connectTo } from './relay/target.mjs'

const relay = await startRelay('network-test')
process.env.RELAY_PORT = String(relay.port)
afterAll(() => relay.stop())

const inside = memoryTarget('network-test').hooks ?? {}

const target: ConformanceTarget = {
  driver: 'relay',
  connect: (options) => connectTo(relay.host, relay.port, options),
  tolerances: { heartbeatMs: 6000, largestBody: 2 * 1024 * 1024 },
  hooks: {
    stopBroker: relay.stop,
    startBroker: relay.start,
    restart: () => relay.stop().then(relay.start),
    severConnections: relay.sever,
    // The broker behind the relay is in this process, so its insides are at hand.
    publishNative: inside.publishNative!,
    readNative: inside.readNative!,
    deleteTopology: inside.deleteTopology!,
    breakDeadLetters: inside.breakDeadLetters!,
    breakRetries: inside.breakRetries!,
    rejectPublishes: inside.rejectPublishes!,
    connectWithBadCredentials: (options) =>
      connectTo(relay.host, relay.port, options, { password: 'wrong' }),
    program: new URL('./relay/target.mjs', import.meta.url),
    proxy: { host: relay.host, port: relay.port, connect: connectTo },
  },
}

conformance(target, {
  async onReport(report: Report) {
    expect(report.unproven).toEqual([])
    expect(report.checks.length).toBeGreaterThan(checks.length / 2)
  },
})

describe('wrong drivers are found out on the network, too', () => {
  const subjectOf = async (wrong: Parameters<typeof connectTo>[3]) => {
    const connect = (host: string, port: number, options?: BusOptions) =>
      connectTo(host, port, options, wrong)
    const subject: ConformanceTarget = {
      ...target,
      connect: (options) => connect(relay.host, relay.port, options),
      // What never comes need not be awaited so long.
      tolerances: { ...target.tolerances, slowness: 0.2 },
      hooks: { proxy: { host: relay.host, port: relay.port, connect } },
    }
    return { subject, ...(await examine(subject)) }
  }
  const find = (id: string) => checks.find((check) => check.id === id)!

  test('connection.half-open fails on a driver without a heartbeat', async () => {
    const { subject, capabilities } = await subjectOf({ silence: 3_600_000 })
    const result = await runCheck(find('connection.half-open'), subject, capabilities)
    expect(result.reason).toMatch(/the dead connection to be noticed/)
  })

  test('connection.slow-and-flaky fails on a driver that takes lost confirmations for done', async () => {
    const { subject, capabilities } = await subjectOf({ optimist: true })
    // Chance decides which packets the resets hit: a run in which they spare all publishes proves nothing.
    let reason: string | undefined
    for (let run = 0; run < 5 && reason === undefined; run++) {
      ;({ reason } = await runCheck(find('connection.slow-and-flaky'), subject, capabilities))
    }
    expect(reason).toMatch(/"lost":[1-9]/)
  }, 600_000)
})
