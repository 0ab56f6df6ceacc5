// A driver with a broker on TCP, as a third party would write it: here the kit's proxy and processes do their work.
import { type ConformanceTarget, checks, type Report } from '@longshore/conformance'
import { conformance } from '@longshore/conformance/vitest'
import { expect } from 'vitest'
import { startRelay } from './relay/server.mjs'
import { connectTo } from './relay/target.mjs'

const relay = await startRelay('network-test')
process.env.RELAY_PORT = String(relay.port)

const target: ConformanceTarget = {
  driver: 'relay',
  connect: (options) => connectTo(relay.host, relay.port, options),
  tolerances: { heartbeatMs: 6000, largestBody: 2 * 1024 * 1024 },
  hooks: {
    stopBroker: relay.stop,
    startBroker: relay.start,
    restart: () => relay.stop().then(relay.start),
    severConnections: relay.sever,
    program: new URL('./relay/target.mjs', import.meta.url),
    proxy: { host: relay.host, port: relay.port, connect: connectTo },
  },
}

conformance(target, {
  async onReport(report: Report) {
    await relay.stop()
    const skipped = report.checks.filter((one) => one.noLoss && one.status === 'skipped')
    const hooks = ['breakDeadLetters', 'breakRetries']
    const reasons = skipped.map((one) => one.reason)
    expect(reasons.every((reason) => hooks.some((hook) => reason?.includes(hook)))).toBe(true)
    expect(report.checks.length).toBeGreaterThan(checks.length / 2)
  },
})
