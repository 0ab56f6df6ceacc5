import { OptionError, silentLogger, systemClock } from '@longshore/core'
import { expect, test } from 'vitest'
import type { RabbitmqOptions } from './options.js'
import { resolveSettings, slotOf } from './settings.js'

const resolve = (url: string | undefined, options: RabbitmqOptions = {}, autoCreate = true) =>
  resolveSettings({
    url,
    options,
    autoCreate,
    connectTimeoutMs: 1000,
    clock: systemClock,
    logger: silentLogger,
    onStatus() {},
  })

test('defaults', () => {
  expect(resolve(undefined)).toMatchObject({
    secure: false,
    hosts: [{ hostname: 'localhost', port: 5672 }],
    vhost: '/',
    username: 'guest',
    password: 'guest',
    heartbeat: 5,
    queueType: 'quorum',
    partitions: 8,
    mandatory: false,
  })
  expect(resolve(undefined, {}, false).mandatory).toBe(true)
})

test('everything in the URL', () => {
  const url =
    'amqps://us%40er:p%3Ass:word@one,two:1234,[::1]:5/a%2Fb?heartbeat=10&queueType=classic&priorities=5&mandatory=true'
  expect(resolve(url, { hosts: ['three'] })).toMatchObject({
    secure: true,
    hosts: [
      { hostname: 'one', port: 5671 },
      { hostname: 'two', port: 1234 },
      { hostname: '::1', port: 5 },
      { hostname: 'three', port: 5671 },
    ],
    vhost: 'a/b',
    username: 'us@er',
    password: 'p:ss:word',
    heartbeat: 10,
    queueType: 'classic',
    priorities: 5,
    mandatory: true,
  })
})

test('names', () => {
  const { names } = resolve(undefined)
  expect(names.exchange('a.b')).toBe('a.b')
  expect(names.queue('a.b', 'g')).toBe('a.b..g')
  expect(names.deadLetters('a.b', 'g')).toBe('a.b..g..dead')
  const own = resolve(undefined, { queue: (topic, group) => `${group}-${topic}` }).names
  expect(own.deadLetters('t', 'g')).toBe('g-t..dead')
})

test.each<[string, string | undefined, RabbitmqOptions, RegExp]>([
  ['a port that is no number', 'amqp://host:abc', {}, /no host/],
  ['no AMQP', 'http://host', {}, /no valid URL/],
  ['an unknown option in the URL', 'amqp://host?heartbeet=3', {}, /'heartbeet' can't be given/],
  ['a function in the URL', 'amqp://host?queue=x', {}, /'queue' can't be given/],
  ['a bad escape', 'amqp://host/%zz', {}, /vhost in the URL/],
  ['a heartbeat that is no number', 'amqp://host?heartbeat=', {}, /heartbeat is NaN/],
  ['a flag that is none', 'amqp://host?mandatory=yes', {}, /mandatory is yes/],
  ['no partitions', undefined, { partitions: 0 }, /1 to 64/],
  ['priorities of a quorum queue', undefined, { priorities: 5 }, /queueType: 'classic'/],
  ['one priority', undefined, { priorities: 1, queueType: 'classic' }, /2 to 255/],
  ['another queue type', undefined, { queueType: 'stream' as never }, /quorum, classic/],
  ['tls without amqps', 'amqp://host', { tls: {} }, /amqps/],
  [
    'an unknown tls option',
    'amqps://host',
    { tls: { cafile: 'x' } as never },
    /no option 'cafile'/,
  ],
  ['no function', undefined, { exchange: 'x' as never }, /exchange must be a function/],
  ['hosts that are no list', undefined, { hosts: 'a,b' as never }, /array/],
])('refused: %s', (_, url, options, message) => {
  expect(() => resolve(url, options)).toThrow(message)
})

test('a password never shows in an error', () => {
  expect(() => resolve('amqq://user:secret@host')).toThrow(/^(?!.*secret)/)
})

test('a name that AMQP can not hold is refused when it is made', () => {
  const { names } = resolve(undefined, { queue: () => 'x'.repeat(256) })
  expect(() => names.queue('t', 'g')).toThrow(/255 bytes/)
  const none = resolve(undefined, { exchange: () => undefined as never }).names
  expect(() => none.exchange('t')).toThrow(/function 'exchange'/)
  const { bindingKeys } = resolve(undefined, { bindingKeys: () => ['x'.repeat(256)] })
  expect(() => bindingKeys('t', 'g', undefined)).toThrow(/function 'bindingKeys'.*255 bytes/)
})

test('what a function throws is an OptionError that names it', () => {
  const broken = () => {
    throw new TypeError('no such tenant')
  }
  const { names, bindingKeys } = resolve(undefined, { exchange: broken, bindingKeys: broken })
  for (const call of [() => names.exchange('t'), () => bindingKeys('t', 'g', undefined)]) {
    expect(call).toThrow(OptionError)
    expect(call).toThrow(/function '(exchange|bindingKeys)' threw: no such tenant/)
  }
})

test('slots are what other producers would compute: FNV-1a of the UTF-16 units, modulo 64', () => {
  expect(slotOf('')).toBe(String(0x811c9dc5 % 64))
  // FNV-1a of 'a' is 0xe40c292c.
  expect(slotOf('a')).toBe(String(0xe40c292c % 64))
  // FNV-1a of 'foobar' is 0xbf9cf968.
  expect(slotOf('foobar')).toBe(String(0xbf9cf968 % 64))
})
