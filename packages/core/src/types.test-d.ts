/** What must and must not compile. Checked by `tsc`; nothing here is run. */
import { expectTypeOf } from 'vitest'
import { z } from 'zod'
import type { DriverModule } from './driver.js'
import {
  type Bus,
  binary,
  type Codec,
  connect,
  type DeadLetter,
  type Delivery,
  deadLetter,
  type MemoryOptions,
  memory,
  type Published,
  type PublishOutcome,
  retry,
  text,
  timeout,
  topic,
} from './index.js'
import { createTestBus } from './testing/index.js'

declare const bus: Bus

const orderSchema = z.object({
  id: z.string(),
  placedAt: z.string().transform((at) => new Date(at)),
  total: z.number().default(0),
})
const orders = topic('orders', { schema: orderSchema, key: (order) => order.id })

export async function schemas() {
  // Publishing takes the input of the schema, handlers get its output.
  await bus.publish(orders, { id: '1', placedAt: '2026-01-01' })
  await bus.subscribe(orders, { group: 'g' }, (order, context) => {
    expectTypeOf(order).toEqualTypeOf<{ id: string; placedAt: Date; total: number }>()
    expectTypeOf(context.payload).toEqualTypeOf(order)
    expectTypeOf(context.message.payload.placedAt).toEqualTypeOf<Date>()
  })
  await bus.subscribeBatch(orders, { group: 'g' }, (batch, { messages, fail }) => {
    expectTypeOf(batch[0]!.placedAt).toEqualTypeOf<Date>()
    expectTypeOf(messages[0]!.payload.total).toEqualTypeOf<number>()
    fail(0, new Error('x'))
  })
  for await (const delivery of bus.consume(orders, { group: 'g' })) {
    expectTypeOf(delivery.payload.placedAt).toEqualTypeOf<Date>()
    expectTypeOf(await delivery.ack()).toEqualTypeOf<boolean>()
  }
  expectTypeOf(
    await bus.publishBatch(orders, [{ payload: { id: '1', placedAt: 'x' } }]),
  ).toEqualTypeOf<PublishOutcome[]>()

  // @ts-expect-error the input is a string, not a Date
  await bus.publish(orders, { id: '1', placedAt: new Date() })
  // @ts-expect-error a property is missing
  await bus.publish(orders, { id: '1' })
  // @ts-expect-error a property has the wrong type
  await bus.publish(orders, { id: 1, placedAt: 'x' })
  // @ts-expect-error a property is too many
  await bus.publish(orders, { id: '1', placedAt: 'x', totl: 5 })
  // @ts-expect-error a member of a batch has the wrong payload
  await bus.publishBatch(orders, [{ payload: { id: 1, placedAt: 'x' } }])
  // @ts-expect-error there is no such property in the output
  await bus.subscribe(orders, { group: 'g' }, (order) => order.nothing)
  // @ts-expect-error the handler wants another payload
  await bus.subscribe(orders, { group: 'g' }, (order: { id: number }) => order.id)
  // @ts-expect-error the handler wants the input, but gets the output
  await bus.subscribe(orders, { group: 'g' }, (order: { placedAt: string }) => order.placedAt)
  // @ts-expect-error the key is made of the input, which has no such property
  topic('orders', { schema: orderSchema, key: (order) => order.customer })
  // @ts-expect-error a key is a string
  topic('orders', { schema: orderSchema, key: () => 5 })
}

export async function namedByString() {
  await bus.publish('orders', { anything: 1 })
  await bus.publish<{ n: number }>('orders', { n: 1 })
  // @ts-expect-error the given type is another
  await bus.publish<{ n: number }>('orders', { n: 'x' })
  await bus.subscribe<{ n: number }>('orders', { group: 'g' }, ({ n }) => n.toFixed())
  await bus.subscribe('orders', { group: 'g' }, (payload) => {
    expectTypeOf(payload).toEqualTypeOf<unknown>()
  })
  // @ts-expect-error without a type the payload is unknown
  await bus.subscribe('orders', { group: 'g' }, (payload) => payload.n)
  for await (const delivery of bus.consume<{ n: number }>('orders', { group: 'g' })) {
    expectTypeOf(delivery).toEqualTypeOf<Delivery<{ n: number }>>()
  }
}

export async function codecs() {
  const notes = topic('notes', { codec: text() })
  await bus.publish(notes, 'x')
  // @ts-expect-error the text codec takes strings
  await bus.publish(notes, 5)
  const blobs = topic('blobs', { codec: binary() })
  await bus.subscribe(blobs, { group: 'g' }, (blob) => blob.byteLength)
  // @ts-expect-error the binary codec takes bytes
  await bus.publish(blobs, 'x')
  const own: Codec<number> = {
    contentType: 'text/number',
    encode: (n) => Buffer.from(String(n)),
    decode: (body) => Number(Buffer.from(body).toString()),
  }
  await bus.publish(topic('numbers', { codec: own }), 5)
  // @ts-expect-error the codec is for numbers
  topic<string>('numbers', { codec: own })
}

export async function options() {
  expectTypeOf(
    await bus.publish('a', 1, {
      delay: '2h',
      ttl: 500,
      key: 'k',
      headers: { a: 'b' },
      signal: new AbortController().signal,
    }),
  ).toEqualTypeOf<Published>()
  // @ts-expect-error misspelt
  await bus.publish('a', 1, { dealy: '2h' })
  // @ts-expect-error no such unit
  await bus.publish('a', 1, { delay: '2 weeks' })
  // @ts-expect-error headers are strings
  await bus.publish('a', 1, { headers: { n: 1 } })
  // @ts-expect-error a Date
  await bus.publish('a', 1, { at: '2026-01-01' })
  // @ts-expect-error delay belongs to the entries
  await bus.publishBatch('a', [], { delay: 5 })
  // @ts-expect-error the group is needed
  await bus.subscribe('a', {}, () => {})
  // @ts-expect-error misspelt
  await bus.subscribe('a', { group: 'g', concurency: 5 }, () => {})
  // @ts-expect-error no such order
  await bus.subscribe('a', { group: 'g', order: 'keys' }, () => {})
  // @ts-expect-error no such start
  await bus.subscribe('a', { group: 'g', from: 'beginning' }, () => {})
  // @ts-expect-error misspelt, one level down
  await bus.subscribe('a', { group: 'g', retry: { attemts: 5 } }, () => {})
  // @ts-expect-error misspelt, one level down
  await bus.subscribe('a', { group: 'g', killSwitch: { rate: 5 } }, () => {})
  // @ts-expect-error only batches have a size
  await bus.subscribe('a', { group: 'g', batchSize: 5 }, () => {})
  // @ts-expect-error the handler is needed
  await bus.subscribe('a', { group: 'g' })
  // @ts-expect-error misspelt
  topic('a', { schmea: orderSchema })
  await bus.subscribe(
    'a',
    {
      group: 'g',
      retry: retry({ attempts: 5 }),
      deadLetter: deadLetter(),
      middleware: [timeout('5s'), (context, next) => next(context)],
    },
    () => {},
  )
  // @ts-expect-error misspelt
  retry({ atempts: 5 })
  // @ts-expect-error a middleware must pass on the context
  await bus.subscribe('a', { group: 'g', middleware: [(_, next) => next()] }, () => {})
  for await (const letter of bus.deadLetters(orders, 'g').list({ reason: 'exhausted' })) {
    expectTypeOf(letter).toEqualTypeOf<DeadLetter>()
  }
  // @ts-expect-error no such reason
  bus.deadLetters('a', 'g').list({ reason: 'tired' })
  // @ts-expect-error a filter is needed
  await bus.deadLetters('a', 'g').discard()
  await bus.circuits(orders, 'g').close('k', { redrive: true })
  await bus.cancelDelayed(orders, 'id')
  // @ts-expect-error no such event
  bus.on('handeld', () => {})
  bus.on('handled', ({ durationMs, message }) => {
    expectTypeOf(durationMs).toEqualTypeOf<number>()
    expectTypeOf(message.id).toEqualTypeOf<string>()
  })
}

export async function connecting() {
  await connect('memory://', { autoCreate: false })
  await connect({ url: 'amqp://localhost' })
  await connect({ driver: 'memory', options: { retain: 5 } })
  await connect({ driver: memory, options: { partitions: 8 } })
  // @ts-expect-error misspelt driver
  await connect({ driver: 'memroy' })
  // @ts-expect-error misspelt option
  await connect({ url: 'memory://', autocreate: true })
  // @ts-expect-error misspelt option of the driver
  await connect({ driver: 'memory', options: { retian: 5 } })
  // @ts-expect-error wrong type of an option of the driver
  await connect({ driver: 'memory', options: { retain: 'many' } })
  // @ts-expect-error options of a driver need to say which
  await connect({ url: 'memory://', options: { retain: 5 } })
  // @ts-expect-error wrong type of an option of a given driver
  await connect({ driver: memory, options: { partitions: '8' } })
  // @ts-expect-error neither a URL nor a driver
  await connect({})
  // @ts-expect-error no such policy
  await connect('memory://', { publish: { buffer: { policy: 'drop' } } })
  // @ts-expect-error misspelt, two levels down
  await connect('memory://', { publish: { buffer: { maxbytes: 1 } } })
  expectTypeOf(memory).toExtend<DriverModule<MemoryOptions>>()
  await using test = await createTestBus({ memory: { retain: 5 } })
  expectTypeOf(test).toExtend<Bus>()
  test.native().broker.sever()
  // @ts-expect-error the clock of a test bus is virtual
  await createTestBus({ clock: { now: () => 0, setTimer: () => ({ cancel() {} }) } })
}
