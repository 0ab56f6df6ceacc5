// The matrix must be able to fail: for each fault there is a driver or a broker that does not survive it.
import { examine, runCheck } from '@longshore/conformance'
import { afterAll, describe, expect, test } from 'vitest'
import { mutants, wrongTarget } from '../conformance/mutants/index.js'
import { startRelay } from '../conformance/relay/server.mjs'
import { connectTo } from '../conformance/relay/target.mjs'
import { cells } from './cells/index.js'
import { Leaks } from './leaks.js'
import { outcomeOf } from './matrix.js'
import type { FaultTarget } from './target.js'

const relay = await startRelay('faults-wrong')
afterAll(() => relay.stop())

/** The memory driver with one of the kit's wrongs. */
function mutant(name: string): FaultTarget {
  const found = mutants.find((one) => one.name === name)
  if (!found) throw new Error(`there is no mutant '${name}'`)
  return wrongTarget(found)
}

/** A driver on TCP with something wrong. */
function wrongRelay(wrong: Parameters<typeof connectTo>[3]): FaultTarget {
  return {
    driver: 'relay',
    connect: (options) => connectTo(relay.host, relay.port, options, wrong),
    tolerances: { heartbeatMs: 6000, slowness: 0.5 },
    hooks: {
      proxy: {
        host: relay.host,
        port: relay.port,
        connect: (host, port, options) => connectTo(host, port, options, wrong),
      },
    },
  }
}

const lossy = () => mutant('confirms and does not store every seventh message')
const silent: FaultTarget = {
  ...mutant('says true to every ack'),
  exhaustMemory: async () => () => {},
}

const claims: readonly [cell: string, target: () => FaultTarget, says: RegExp][] = [
  [
    'consumer-killed',
    () => mutant('acks when it delivers, before the handler ran'),
    /to come back/,
  ],
  ['broker-restarted', () => mutant('delivers nothing after a reconnect'), /"lost":[1-9]/],
  [
    'broker-crashed',
    () => {
      const target = lossy()
      return { ...target, crashBroker: target.hooks!.restart! }
    },
    /"lost":[1-9]/,
  ],
  [
    'cut-in-mid-publish',
    () => mutant('reports as done what it does not know'),
    /"lost":[1-9]|wait/,
  ],
  ['half-open', () => wrongRelay({ silence: 3_600_000 }), /the dead connection to be noticed/],
  ['slow-and-flaky', () => wrongRelay({ optimist: true }), /"lost":[1-9]/],
  ['broker-out-of-memory', () => silent, /the alarm to be noticed/],
  [
    'poison-block',
    () => mutant('lets later messages of a key pass one that waits for its retry'),
    /order breaks|passed it/,
  ],
  ['poison-skip', () => mutant('holds the key back though it should not'), /nothing passed it/],
  ['poison-park', () => mutant('drops the parked messages'), /15 dead letters/],
  ['redrive-killed', () => mutant('removes dead letters before it sends them'), /"lost":[1-9]/],
  ['sigterm-under-load', () => mutant('acks what is handed back unstarted'), /"lost":[1-9]/],
  ['topology-deleted', lossy, /"lost":[1-9]/],
  [
    'members-come-and-go',
    () => mutant('gives the messages of one key to several members at once'),
    /order broken/,
  ],
]

describe('each fault finds a driver out', () => {
  for (const [id, make, says] of claims) {
    test.concurrent(`${id}: ${says.source}`, { timeout: 120_000 }, async () => {
      const made = make()
      // What never comes need not be awaited so long.
      const target = { ...made, tolerances: { slowness: 0.2, ...made.tolerances } }
      const cell = cells(target).find((one) => one.id === id)!
      const { capabilities } = await examine(target)
      const { status, reason } = await runCheck(cell, target, capabilities)
      expect(status, reason).toBe('failed')
      expect(reason).toMatch(says)
    })
  }

  test('and none is left out', () => {
    const known = cells(lossy()).map(({ id }) => id)
    expect(claims.map(([id]) => id).sort()).toEqual([...known].sort())
  })
})

test('a connection that is left open makes a cell fail', async () => {
  const leaks = Leaks.before({ ...lossy(), countConnections: async () => 2 }, 100)
  const leak = await leaks.after()
  expect(leak).toContain("the broker's 2 connections to end")
  const result = { id: 'x', title: 'x', area: 'order', ref: 0, ms: 1, status: 'passed' } as const
  const outcome = outcomeOf(result, leak)
  expect(outcome.status).toBe('failed')
  expect(outcome.reason).toContain('left open')
})
