import { AccessError, type Bus, PermanentError } from '@longshore/core'
import { expect, test } from 'vitest'
import { eventually } from '../brokers/support.js'
import { Bystander, bystanders } from './lab/bystander.js'
import { refusal } from './lab/errors.js'
import { Front } from './lab/front.js'
import { type Lab, onServers } from './lab/lab.js'
import { Log } from './lab/log.js'

await onServers('access', (lab) => {
  connecting(lab)
  permissions(lab)
  revoked(lab)
})

/** All that a bystander and retries need. */
const common = `${bystanders}|longshore\\.\\.delay`

function connecting(lab: Lab) {
  /** It may come once for each of its two connections, and not again. */
  async function comesOnce(front: Front, log: Log) {
    await eventually(() => front.open === 0)
    const came = front.accepted
    expect(came).toBeLessThanOrEqual(2)
    await lab.connect({ via: front })
    expect(front.accepted).toBe(came + 2)
    expect(log.lines).toEqual([])
  }

  test('a wrong password is an AccessError, at once and once', async () => {
    const front = await Front.of(lab)
    const logger = new Log()
    const login = { user: 'guest', password: 'wr0ng' }
    const connecting = lab.connect({ via: front, login, logger, connectTimeout: '25s' })
    const error = await refusal(connecting, AccessError, "user 'guest'", 'check user and password')
    expect(error.message).not.toContain('wr0ng')
    await comesOnce(front, logger)
  })

  test('a virtual host that does not exist is an AccessError, at once and once', async () => {
    const front = await Front.of(lab)
    const logger = new Log()
    const connecting = lab.connect({ via: front, vhost: 'nowhere', logger, connectTimeout: '25s' })
    await refusal(connecting, AccessError, "virtual host 'nowhere'", 'add_vhost')
    await comesOnce(front, logger)
  })

  test('a user without permissions on the virtual host gets an AccessError, at once and once', async () => {
    const login = await lab.limited({})
    await lab.tool('clear_permissions', '-p', lab.vhost, login.user)
    const front = await Front.of(lab)
    const logger = new Log()
    const connecting = lab.connect({ via: front, login, logger, connectTimeout: '25s' })
    await refusal(connecting, AccessError, login.user, 'set_permissions')
    await comesOnce(front, logger)
  })
}

function permissions(lab: Lab) {
  test('without configure permission subscribe and publish are AccessErrors of their own', async () => {
    const login = await lab.limited({ configure: `^(${common})` })
    const bus = await lab.connect({ login })
    const bystander = await Bystander.on(bus)
    const topic = lab.unique('orders')
    await refusal(
      bus.subscribe(topic, { group: 'g' }, () => {}),
      AccessError,
      `'${topic}'`,
      'set_permissions',
      'autoCreate: false',
    )
    await refusal(
      bus.subscribe(topic, { group: 'ordered', order: 'key' }, () => {}),
      AccessError,
      `'${topic}'`,
    )
    await refusal(bus.publish(topic, 1), AccessError, `'${topic}'`, 'set_permissions')
    await bystander.unharmed()
  })

  test('without write permission a publish is surely refused, and others in flight are confirmed', async () => {
    const login = await lab.limited({ write: `^(${common}|open|amq.default)` })
    const bus = await lab.connect({ login })
    const bystander = await Bystander.on(bus)
    const topic = lab.unique('orders')
    await refusal(bus.publish(topic, 1), AccessError, `'${topic}'`, 'write permission')
    const entries = (payloads: number[]) => payloads.map((payload) => ({ payload }))
    const [allowed, forbidden] = await Promise.all([
      bus.publishBatch('open', entries([1, 2, 3])),
      bus.publishBatch(topic, entries([1, 2, 3])),
    ])
    expect(allowed.map(({ status }) => status)).toEqual(['confirmed', 'confirmed', 'confirmed'])
    for (const outcome of forbidden) {
      expect(outcome).toMatchObject({ status: 'failed', error: expect.any(AccessError) })
    }
    await bystander.unharmed()
  })

  test('without read permission subscribe is an AccessError, also on what exists', async () => {
    const topic = lab.unique('orders')
    const owner = await lab.connect()
    await owner.admin.createGroup(topic, 'g', { order: 'none', from: 'latest' })
    const login = await lab.limited({ read: `^(${common})` })
    const bus = await lab.connect({ login })
    const bystander = await Bystander.on(bus)
    const subscribe = (on: Bus) => on.subscribe(topic, { group: 'g' }, () => {})
    await refusal(subscribe(bus), AccessError, topic, 'set_permissions')
    await bus.publish(topic, 1)
    await bystander.unharmed()
    const careful = await lab.connect({ login, autoCreate: false })
    await refusal(subscribe(careful), AccessError, `${topic}..g`, 'set_permissions')
  })

  test('a dead letter that may not be stored stays with the group until it may', async () => {
    const login = await lab.limited({ write: `^(${common}|orders)` })
    const logger = new Log()
    const bus = await lab.connect({ login, logger })
    const bystander = await Bystander.on(bus)
    const topic = lab.unique('orders')
    await bus.subscribe(topic, { group: 'g' }, () => {
      throw new PermanentError('never')
    })
    const failures: Error[] = []
    bus.on('settle-failed', ({ error }) => failures.push(error))
    await bus.publish(topic, 1, { id: 'one' })
    await eventually(() => failures.length >= 3)
    for (const error of failures) await refusal(Promise.reject(error), AccessError, 'amq.default')
    // It goes slower each time: two lines for each try, and no others.
    expect(logger.lines.length).toBeLessThanOrEqual(2 * failures.length + 2)
    await lab.limited({})
    await eventually(async () => (await bus.deadLetters(topic, 'g').count()) === 1)
    expect((await bus.deadLetters(topic, 'g').get('one'))?.failure.errorMessage).toBe('never')
    await bystander.unharmed()
  })
}

function revoked(lab: Lab) {
  const cut = () => lab.tool('close_all_connections', '--vhost', lab.vhost, 'for the test')

  test('a permission revoked while running ends what needs it, typed, and nothing else', async () => {
    const login = await lab.limited({})
    const logger = new Log()
    const bus = await lab.connect({ login, logger })
    const topic = lab.unique('orders')
    const [lost, kept, kept2]: string[][] = [[], [], []]
    const take = (seen: string[]) => (payload: string) => void seen.push(payload)
    const doomed = await bus.subscribe<string>(topic, { group: 'g' }, take(lost!))
    const ordered = await bus.subscribe<string>(topic, { group: 'o', order: 'key' }, take(kept2!))
    const other = lab.unique(bystanders)
    await bus.subscribe<string>(other, { group: 'watch' }, take(kept!))
    await bus.publish(topic, 'before')
    await eventually(() => lost!.length === 1 && kept2!.length === 1)
    await lab.limited({ read: `^(${common})`, write: `^(${common})` })
    await cut()
    for (const subscription of [doomed, ordered]) {
      await refusal(subscription.done, AccessError, topic, 'set_permissions')
      expect(subscription.state).toBe('failed')
    }
    await bus.publish(other, 'after')
    await eventually(() => kept!.includes('after'))
    await refusal(bus.publish(topic, 'after'), AccessError, topic)
    expect(logger.lines.length).toBeLessThan(10)
  })

  test('a user locked out while running comes back when let in', async () => {
    const login = await lab.limited({})
    const logger = new Log()
    const bus = await lab.connect({ login, logger })
    const topic = lab.unique('orders')
    const seen: string[] = []
    await bus.subscribe<string>(topic, { group: 'g' }, (payload) => void seen.push(payload))
    await lab.tool('clear_permissions', '-p', lab.vhost, login.user)
    await cut()
    await eventually(() => logger.lines.some((line) => line.includes('refused the virtual host')))
    expect(bus.health()).toMatchObject({ status: 'down', connection: { state: 'down' } })
    const publishing = bus.publish(topic, 'kept')
    const begun = Date.now()
    await lab.limited({})
    await publishing
    await eventually(() => seen.includes('kept'))
    expect(bus.health().status).toBe('up')
    // Pauses grow from 50 ms to 5 s: that many tries of two connections fit into the time.
    const tries = 2 * (2 + Math.log2(1 + (Date.now() - begun + 5000) / 50))
    expect(logger.lines.length).toBeLessThan(tries)
  })
}
