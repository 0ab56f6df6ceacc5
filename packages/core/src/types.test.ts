import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { describe, expect, it } from 'vitest'

const here = fileURLToPath(new URL('.', import.meta.url))
const root = fileURLToPath(new URL('../../../', import.meta.url))

/** Each is a line of a user's program that must not compile, and what the compiler must say of it. */
const mistakes: { what: string; line: string; says: RegExp }[] = [
  {
    what: 'a wrong payload',
    line: "await bus.publish(orders, { id: 42, placedAt: 'x' })",
    says: /Type 'number' is not assignable to type 'string'/,
  },
  {
    what: 'the output of a transform where its input belongs',
    line: "await bus.publish(orders, { id: '42', placedAt: new Date() })",
    says: /Type 'Date' is not assignable to type 'string'/,
  },
  {
    what: 'an unknown option of publish',
    line: "await bus.publish(orders, { id: '42', placedAt: 'x' }, { dealy: '2h' })",
    says: /'dealy' does not exist in type 'PublishOptions'|did you mean to write 'delay'/i,
  },
  {
    what: 'an unknown option of subscribe',
    line: "await bus.subscribe(orders, { group: 'g', concurency: 5 }, () => {})",
    says: /'concurency'/,
  },
  {
    what: 'a misspelt driver name',
    line: "await connect({ driver: 'rabitmq' })",
    says: /rabitmq/,
  },
  {
    what: 'a handler for another payload',
    line: "await bus.subscribe(orders, { group: 'g' }, (order: { id: number }) => order.id)",
    says: /Type 'string' is not assignable to type 'number'/,
  },
  {
    what: 'a wrong type of an option of a driver',
    line: "await connect({ driver: 'memory', options: { retain: 'many' } })",
    says: /Type 'string' is not assignable to type '(number|never)'/,
  },
  {
    what: 'an unknown option of connect',
    line: "await connect({ url: 'memory://', autocreate: false })",
    says: /autocreate/,
  },
]

const fine = [
  "await bus.publish(orders, { id: '42', placedAt: 'x' }, { delay: '2h' })",
  "await bus.subscribe(orders, { group: 'g' }, (order) => order.placedAt.getTime())",
  "await connect({ driver: 'memory', options: { retain: 5 } })",
]

/** What the compiler says of each line of a program, with the settings of this repository. */
function check(lines: readonly string[]): string[] {
  const head = [
    "import { z } from 'zod'",
    "import { type Bus, connect, topic } from './index.js'",
    'declare const bus: Bus',
    'const schema = z.object({ id: z.string(), placedAt: z.string().transform((at) => new Date(at)) })',
    "const orders = topic('orders', { schema })",
  ]
  const text = [...head, ...lines, ''].join('\n')
  const config = ts.readConfigFile(`${root}tsconfig.json`, ts.sys.readFile)
  const { options } = ts.parseJsonConfigFileContent({ ...config.config, include: [] }, ts.sys, root)
  const name = `${here}fixture-of-types-test.ts`
  const host = ts.createCompilerHost(options)
  const { getSourceFile, fileExists, readFile } = host
  host.getSourceFile = (file, ...rest) =>
    file === name
      ? ts.createSourceFile(file, text, ts.ScriptTarget.ES2023)
      : getSourceFile.call(host, file, ...rest)
  host.fileExists = (file) => file === name || fileExists.call(host, file)
  host.readFile = (file) => (file === name ? text : readFile.call(host, file))
  const program = ts.createProgram([name], options, host)
  const source = program.getSourceFile(name)!
  const found = lines.map(() => '')
  for (const { start, messageText } of program.getSemanticDiagnostics(source)) {
    const line = source.getLineAndCharacterOfPosition(start ?? 0).line - head.length
    const says = ts.flattenDiagnosticMessageText(messageText, '\n')
    if (line < 0) throw new Error(says)
    found[line] += says
  }
  return found
}

describe('the types of the public API', () => {
  const found = check([...mistakes.map(({ line }) => line), ...fine])

  mistakes.forEach(({ what, says }, index) => {
    it(`refuse ${what}`, () => {
      expect(found[index]).toMatch(says)
    })
  })

  it('accept what is right', () => {
    expect(found.slice(mistakes.length)).toEqual(fine.map(() => ''))
  })
})
