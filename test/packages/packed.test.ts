import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { pack } from '../../scripts/pack.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const project = mkdtempSync(join(tmpdir(), 'longshore-packed-'))
const run = promisify(execFile)

// As a user's shell has it: not what npm or vitest set for their own children.
const env = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !/^(npm_|NODE_|VITEST)/i.test(name)),
)

/** Runs in the project; an error shows what the program printed. */
async function inProject(command: string, ...args: string[]): Promise<string> {
  try {
    return (await run(command, args, { cwd: project, env })).stdout
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string }
    throw new Error(`${command} ${args.join(' ')}\n${stdout}${stderr}`, { cause: error })
  }
}

const typescript = (...args: string[]) =>
  inProject(process.execPath, join(root, 'node_modules/typescript/bin/tsc'), ...args)

const program = `
import { connect, topic, type DeadLetter } from '@longshore/core'
import type { Driver } from '@longshore/core/driver'
import * as testing from '@longshore/core/testing'
import * as conformance from '@longshore/conformance'

export type { DeadLetter, Driver }

const Greeting = topic<{ name: string }>('greetings')
const bus = await connect('memory://')
const handled = new Promise<string>((resolve) => {
  bus.subscribe(Greeting, { group: 'hall' }, ({ name }) => resolve('hello ' + name))
})
await bus.publish(Greeting, { name: 'world' })
console.log(await handled)
await bus.close()
console.log(Object.keys(testing).length > 0, Object.keys(conformance).length > 0)
`

const wrong = `
import { connect, topic } from '@longshore/core'
const bus = await connect('memory://')
await bus.publish(topic<{ name: string }>('greetings'), { nam: 'world' })
`

// Two compiler runs and an install take their time on a busy machine.
describe('the packages as published, in an empty project', { timeout: 120_000 }, () => {
  beforeAll(async () => {
    const packed = await pack(join(project, 'packed'))
    writeFileSync(join(project, 'package.json'), '{ "type": "module", "private": true }\n')
    const compilerOptions = {
      target: 'ES2023',
      module: 'NodeNext',
      strict: true,
      exactOptionalPropertyTypes: true,
      skipLibCheck: false,
      types: ['node'],
      typeRoots: [join(root, 'node_modules/@types')],
    }
    writeFileSync(
      join(project, 'tsconfig.json'),
      JSON.stringify({ compilerOptions, files: ['main.ts'] }),
    )
    writeFileSync(join(project, 'main.ts'), program)
    writeFileSync(join(project, 'wrong.ts'), wrong)
    const tarballs = packed.map(({ tarball }) => tarball)
    await inProject('npm', 'install', '--no-audit', '--no-fund', '--loglevel=error', ...tarballs)
  })

  afterAll(() => rmSync(project, { recursive: true, force: true }))

  it('type-check and run', async () => {
    await typescript('-p', '.')
    expect(await inProject(process.execPath, 'main.js')).toBe('hello world\ntrue true\n')
  })

  it('refuse a wrong payload when compiled', async () => {
    const check = typescript(
      '--noEmit',
      '--ignoreConfig',
      '--module',
      'nodenext',
      '--target',
      'es2023',
      '--strict',
      '--skipLibCheck',
      'wrong.ts',
    )
    await expect(check).rejects.toThrow("'nam' does not exist in type '{ name: string; }'")
  })
})
