import { topic } from '@longshore/core'
import { check } from '../check.js'
import { ensure, same, sameBytes } from '../expect.js'
import { bytes, quickRetry } from './shared.js'

export const interop = [
  check({
    id: 'fidelity.foreign-message',
    title: 'A message of a foreign producer is consumed with a stable id and its native headers',
    area: 'fidelity',
    ref: 11,
    needs: { hooks: ['publishNative'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = bytes(ctx.topic())
      const options = { group: ctx.group(), retry: quickRetry }
      const { seen, has } = await ctx.collect(bus, to, options, (_, { attempt }) => {
        if (attempt === 1) throw new Error('once more, to see whether the id stays')
      })
      const body = Buffer.from('from elsewhere')
      await ctx.hooks.publishNative(to.name, { body, headers: { tenant: 'acme' } })
      await has(2)
      const [first, second] = seen
      sameBytes(first!.payload, body, 'body')
      same(first!.message.headers.tenant, 'acme', 'native header')
      ensure(first!.message.id.length > 0, 'the message has no id')
      same(second!.message.id, first!.message.id, 'id of the second attempt')
      same(second!.attempt, 2, 'attempt')
      const invented = Object.keys(first!.message.headers).filter((n) => n.startsWith('longshore-'))
      same(invented, [], 'reserved headers shown to the handler')
    },
  }),

  check({
    id: 'fidelity.native-reader',
    title:
      'The native client reads the plain body and the expected native properties of our message',
    area: 'fidelity',
    ref: 12,
    needs: { hooks: ['readNative'] },
    async run(ctx) {
      const bus = await ctx.connect()
      const to = topic<{ total: number }>(ctx.topic())
      // Where publishing creates nothing, the group makes the topic exist.
      await ctx.collect(bus, to, { group: ctx.group() })
      const reader = await ctx.hooks.readNative(to.name)
      ctx.defer(() => reader.close())
      const { id } = await bus.publish(
        to,
        { total: 99 },
        { key: 'c7', headers: { tenant: 'acme' } },
      )
      const message = await ctx.within(reader.next(), 'the native client to read our message')
      same(Buffer.from(message.body).toString(), '{"total":99}', 'body')
      same(message.headers.tenant, 'acme', 'header')
      const expected = { id, key: 'c7', contentType: 'application/json' }
      for (const name of ['id', 'key', 'contentType'] as const) {
        // What the broker has no place for is left out by the hook.
        if (message[name] !== undefined) same(message[name], expected[name], `native ${name}`)
      }
    },
  }),
]
