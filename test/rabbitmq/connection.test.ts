import { ConnectionError } from '@longshore/core'
import { expect, test } from 'vitest'
import { eventually } from '../brokers/support.js'
import { selfSigned } from './lab/certificate.js'
import { refusal } from './lab/errors.js'
import { gate } from './lab/gate.js'
import { type Lab, nativeOf, onServers } from './lab/lab.js'
import { Log } from './lab/log.js'
import { tlsFront } from './lab/tls.js'

await onServers('connection', (lab) => {
  hosts(lab)
  encrypted(lab)
  keptUp(lab)
})

const dead = { host: '127.0.0.1', port: 1 }
const hostOf = ({ host, port }: { host: string; port: number }) => `${host}:${port}`

function hosts(lab: Lab) {
  test('of several hosts the first that answers is used', async () => {
    const bus = await lab.connect({
      via: dead,
      options: { hosts: ['127.0.0.1:2', hostOf(lab.server.address)] },
      connectTimeout: 3000,
    })
    expect(bus.health().status).toBe('up')
    expect(bus.server).toMatch(/^RabbitMQ \d/)
    await bus.publish(lab.unique('orders'), 1)
  })

  test('several hosts in the URL', async () => {
    const { host, port } = lab.server.address
    const bus = await lab.connect({ via: { host: `127.0.0.1:1,${host}`, port } })
    expect(bus.health().status).toBe('up')
  })

  test('a connection that is lost goes on with another host, and back', async () => {
    const [one, two] = [await lab.proxy(), await lab.proxy()]
    const logger = new Log()
    const bus = await lab.connect({ via: one, options: { hosts: [hostOf(two)] }, logger })
    expect([one.connections, two.connections]).toEqual([2, 0])
    const topic = lab.unique('orders')
    const seen: number[] = []
    await bus.subscribe<number>(topic, { group: 'g' }, (n) => void seen.push(n))
    const states: string[] = []
    bus.on('connection', ({ state }) => states.push(state))
    for (const [n, [from, to]] of [
      [one, two],
      [two, one],
    ].entries()) {
      from!.refuse()
      from!.cut()
      await bus.publish(topic, n, { deadline: '20s' })
      await eventually(() => seen.includes(n))
      expect([from!.connections, to!.connections]).toEqual([0, 2])
      from!.restore()
    }
    expect(states).toEqual(['down', 'up', 'down', 'up'])
    expect(logger.lines.length).toBeLessThan(20)
  })
}

function encrypted(lab: Lab) {
  const certificate = selfSigned('localhost')

  test('TLS: works with the authority that signed the server’s certificate', async () => {
    const via = await tlsFront(lab, certificate)
    for (const host of ['127.0.0.1', 'localhost']) {
      const options = { tls: { ca: certificate.cert } }
      const bus = await lab.connect({ secure: true, via: { ...via, host }, options })
      const topic = lab.unique('orders')
      const seen: number[] = []
      await bus.subscribe<number>(topic, { group: 'g' }, (n) => void seen.push(n))
      await bus.publish(topic, 1)
      await eventually(() => seen.length === 1)
    }
  })

  test('TLS: an unknown authority, another one, and a plain server are told as such', async () => {
    const via = await tlsFront(lab, certificate)
    const connecting = { secure: true, via, connectTimeout: 400 }
    const names = `127.0.0.1:${via.port}`
    await refusal(lab.connect(connecting), ConnectionError, names, /self.signed certificate/)
    const other = { tls: { ca: selfSigned('other').cert } }
    const wrong = lab.connect({ ...connecting, options: other })
    await refusal(wrong, ConnectionError, names, /self.signed certificate/)
    const plain = lab.connect({ secure: true, connectTimeout: 400 })
    await refusal(plain, ConnectionError, hostOf(lab.server.address), /SSL|TLS|wrong version/i)
    const blind = lab.connect({ via, connectTimeout: 400 })
    await refusal(blind, ConnectionError, names)
    const trusting = { tls: { rejectUnauthorized: false } }
    const bus = await lab.connect({ ...connecting, options: trusting, connectTimeout: 5000 })
    expect(bus.health().status).toBe('up')
  })

  test('TLS: a certificate for another name', async () => {
    const via = await tlsFront(lab, certificate)
    const tls = { ca: certificate.cert, servername: 'rabbit.example' }
    const wrong = lab.connect({ secure: true, via, options: { tls }, connectTimeout: 400 })
    await refusal(wrong, ConnectionError, 'rabbit.example', 'altnames')
  })
}

function keptUp(lab: Lab) {
  test('a silent connection is given up after two to three heartbeats', async () => {
    const proxy = await lab.proxy()
    const bus = await lab.connect({ via: proxy, options: { heartbeat: 1 } })
    const { consuming } = nativeOf(bus)
    expect((consuming!.connection as { heartbeat?: number }).heartbeat).toBe(1)
    const states: string[] = []
    bus.on('connection', ({ state }) => states.push(state))
    const begun = Date.now()
    proxy.swallow()
    await eventually(() => states.includes('down'))
    expect(Date.now() - begun).toBeLessThan(8000)
    expect(bus.health().connection.detail).toMatch(/[Hh]eartbeat/)
    proxy.restore()
    proxy.cut()
    await eventually(() => bus.health().status === 'up')
  })

  test('the server shows a connection under its name, for each of its two ends', async () => {
    const connectionName = lab.unique('billing service')
    await lab.connect({ options: { connectionName } })
    await lab.connect()
    const columns = ['vhost', 'client_properties', 'timeout']
    const rows = await lab.server.list('list_connections', ...columns)
    const mine = rows.filter(({ vhost }) => vhost === lab.vhost)
    const shown = JSON.stringify(mine)
    for (const end of ['publishing', 'consuming']) {
      expect(shown).toContain(`${connectionName} (${end})`)
      expect(shown).toContain(`${process.title} ${process.pid} (${end})`)
    }
    expect(mine.map(({ timeout }) => Number(timeout))).toEqual([5, 5, 5, 5])
  })

  test('settling after the connection was lost settles nothing, and hurts nobody', async () => {
    const proxy = await lab.proxy()
    const bus = await lab.connect({ via: proxy })
    const topic = lab.unique('orders')
    const [started, stale] = [gate(), gate()]
    const settled: Record<string, boolean> = {}
    const seen: string[] = []
    const retry = { maxDeliveries: 1000 }
    const options = { group: 'g', concurrency: 10, retry }
    await bus.subscribe<string>(topic, options, async (payload, ctx) => {
      seen.push(`${payload} ${ctx.deliveries}`)
      if (ctx.deliveries > 1) return
      if (seen.length === 3) started.open()
      await stale.opened
      expect(ctx.signal.aborted).toBe(true)
      if (payload === 'ack') settled.ack = await ctx.ack()
      if (payload === 'retry') settled.retry = await ctx.retry(0)
      if (payload === 'dead') settled.dead = await ctx.deadLetter(new Error('too late'))
    })
    for (const payload of ['ack', 'retry', 'dead']) await bus.publish(topic, payload)
    await started.opened
    proxy.cut()
    await eventually(() => seen.length === 6)
    stale.open()
    await eventually(() => Object.keys(settled).length === 3)
    expect(settled).toEqual({ ack: false, retry: false, dead: false })
    // An acknowledgement of a delivery of the old channel would have closed the new one.
    for (let n = 0; n < 20; n++) await bus.publish(topic, `later ${n}`)
    await eventually(() => seen.length === 26)
    const later = Array.from({ length: 20 }, (_, n) => `later ${n} 1`)
    expect(seen.slice(6).toSorted()).toEqual(later.toSorted())
    expect(seen.slice(0, 6).toSorted()).toEqual(
      ['ack', 'retry', 'dead'].flatMap((one) => [`${one} 1`, `${one} 2`]).toSorted(),
    )
    expect(await bus.deadLetters(topic, 'g').count()).toBe(0)
    await bus.close()
    expect(await lab.count(`${topic}..g`)).toBe(0)
  })

  test('closing while the server can not be reached ends in time', async () => {
    const proxy = await lab.proxy()
    const bus = await lab.connect({ via: proxy })
    const topic = lab.unique('orders')
    await bus.subscribe(topic, { group: 'g' }, () => {})
    proxy.refuse()
    proxy.cut()
    await eventually(() => bus.health().status === 'down')
    const lost = bus.publish(topic, 1)
    lost.catch(() => {})
    const begun = Date.now()
    await bus.close({ timeout: 300 })
    expect(Date.now() - begun).toBeLessThan(5000)
    await expect(lost).rejects.toThrow(/was not sent: the bus closed/)
  })
}
