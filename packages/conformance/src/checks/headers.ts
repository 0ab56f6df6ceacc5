import { type HeaderCharset, topic } from '@longshore/core'
import { check } from '../check.js'
import { codeOf, ensure, fail, rejects, same } from '../expect.js'

const values: Readonly<Record<string, string>> = {
  'umlauts and Chinese': 'Grüße 你好',
  emoji: '\u{1F6A2}\u{1F469}\u200D\u{1F680}',
  quotes: `"double" 'single' \`back\``,
  slashes: 'a/b\\c//d\\\\',
  'percent and plus': '100%25 a+b',
  'spaces around': '  spaced  ',
  'commas and colons': 'a: b, c; d=e',
  'a tab': 'a\tb',
  'a line feed': 'a\nb',
  'a carriage return': 'a\r\nX-Injected: b',
  'a NUL': 'a\0b',
  DEL: 'a\u007fb',
  'a byte-order mark': '\ufeffa',
  'a lone surrogate': 'a\ud800b',
}

const names: Readonly<Record<string, string>> = {
  'dots, dashes, underscores': 'a.b-c_D9',
  'a member of Object.prototype': 'constructor',
  'the prototype itself': '__proto__',
  umlauts: 'größe',
  emoji: '\u{1F6A2}',
  quotes: `say"so'`,
  slashes: 'a/b\\c',
  'a colon': 'a:b',
  'a space': 'a b',
  'a line feed': 'a\nb',
  'a NUL': 'a\0b',
  'a lone surrogate': 'a\udc00',
}

const control = /[\u0000-\u001f\u007f]/
const token = /^[A-Za-z0-9._-]+$/

/** Lone surrogates don't survive UTF-8. */
const isWellFormed = (text: string) => Buffer.from(text).toString() === text

/** Whether a driver that declares this charset must carry the text. Undefined: it may, or refuse it. */
function carried(text: string, charset: HeaderCharset['names']): boolean | undefined {
  if (!isWellFormed(text)) return false
  if (charset === 'token') return token.test(text)
  if (charset === 'unicode') return true
  // A tab counts as printable for some brokers.
  if (text.includes('\t')) return undefined
  return !control.test(text)
}

export const headers = [
  check({
    id: 'fidelity.empty-header',
    title: 'An absent header and an empty-valued header stay different',
    area: 'fidelity',
    ref: 6,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = topic<string>(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      await bus.publish(to, 'empty', { headers: { flag: '' } })
      await bus.publish(to, 'absent', { headers: { other: 'x' } })
      await has(2)
      const of = (payload: string) => seen.find((one) => one.payload === payload)!.message.headers
      same(of('empty').flag, '', 'the empty header')
      ensure(!('flag' in of('absent')), 'the absent header came out of nowhere')
    },
  }),

  ...(['values', 'names'] as const).map((part) =>
    check({
      id: `fidelity.header-${part}`,
      title: `Unicode, quotes, slashes and control characters in header ${part} survive or are a HeaderError, as declared`,
      area: 'fidelity',
      ref: 7,
      async run(ctx) {
        const charset = ctx.capabilities.headerCharset[part]
        const bus = await ctx.connect()
        const to = topic<string>(ctx.topic())
        const { seen } = await ctx.collect(bus, to, { group: ctx.group() })
        let survived = 0
        let refused = 0
        for (const [label, text] of Object.entries(part === 'values' ? values : names)) {
          const header: [string, string] = part === 'values' ? ['probe', text] : [text, 'probe']
          const expected = carried(text, charset)
          try {
            await bus.publish(to, label, { headers: Object.fromEntries([header]) })
          } catch (error) {
            same(codeOf(error), 'LONGSHORE_HEADER', `error for ${label}`)
            if (expected) fail(`${label}: '${charset}' is declared, yet it was refused`)
            refused++
            continue
          }
          if (expected === false) fail(`${label}: '${charset}' is declared, yet it was taken`)
          await ctx.until(
            () => seen.some((one) => one.payload === label),
            `the message with ${label} in its header ${part}`,
          )
          const got = seen.find((one) => one.payload === label)!.message.headers
          same(Object.entries(got), [header], `headers with ${label}`)
          survived++
        }
        ctx.count({ survived, refused })
      },
    }),
  ),

  check({
    id: 'fidelity.many-headers',
    title: '100 headers survive, with their case',
    area: 'fidelity',
    ref: 8,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = topic<string>(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      const sent: Record<string, string> = { 'X-Case': 'Upper', 'x-case': 'lower' }
      for (let i = 0; i < 98; i++) sent[`Header-${i}`] = `Value ${i}`
      await bus.publish(to, 'many', { headers: sent })
      await has(1)
      const got = { ...seen[0]!.message.headers }
      same(Object.keys(got).sort(), Object.keys(sent).sort(), 'header names')
      same(got, sent, 'headers')
    },
  }),

  check({
    id: 'publish.reserved-header',
    title: 'Headers with the reserved prefix are a HeaderError',
    area: 'fidelity',
    ref: 9,
    async run(ctx) {
      const bus = await ctx.connect()
      const to = topic<string>(ctx.topic())
      const { seen, has } = await ctx.collect(bus, to, { group: ctx.group() })
      const reserved = { headers: { 'longshore-attempt': '7' } }
      await rejects(
        () => bus.publish(to, 'reserved', reserved),
        'LONGSHORE_HEADER',
        'publishing a header that begins with longshore-',
      )
      await bus.publish(to, 'next')
      await has(1)
      same(
        seen.map((one) => one.payload),
        ['next'],
        'messages',
      )
    },
  }),
]
