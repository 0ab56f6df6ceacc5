// Everything that is known without running the tests: lint, format, types, build, dead code, and the packages as published.
import { install, run, tool } from './bootstrap.mjs'
import { pack } from './pack.mjs'

/** @param {string} name @param {string} bin @param {readonly string[]} args */
const node = (name, bin, args) => run(process.execPath, [tool(name, bin), ...args], { quiet: true })

/** @type {import('./pack.mjs').Packed[]} */
let packed = []

/** @param {(one: import('./pack.mjs').Packed) => Promise<number>} check */
async function eachPacked(check) {
  if (packed.length === 0) throw new Error('nothing was packed')
  let worst = 0
  for (const one of packed) worst = Math.max(worst, await check(one))
  return worst
}

/** @type {[string, () => Promise<number>][]} */
const steps = [
  [
    'lint and format',
    () => node('@biomejs/biome', 'biome', ['ci', '--colors=off', '--error-on-warnings', '.']),
  ],
  ['types', () => node('typescript', 'tsc', ['--noEmit', '--pretty', 'false'])],
  ['build', () => run(process.execPath, ['scripts/build.mjs'], { quiet: true })],
  ['dead code (knip)', () => node('knip', 'knip', ['--no-progress'])],
  [
    'pack',
    async () => {
      packed = await pack()
      return 0
    },
  ],
  ['publint', () => eachPacked(({ tarball }) => node('publint', 'publint', ['--strict', tarball]))],
  [
    'types as published (attw)',
    () =>
      eachPacked(({ tarball }) =>
        node('@arethetypeswrong/cli', 'attw', [tarball, '--profile', 'esm-only', '--no-emoji']),
      ),
  ],
]

await install()
const failed = []
for (const [name, step] of steps) {
  const start = performance.now()
  const code = await step().catch((error) => {
    console.error(error instanceof Error ? error.message : error)
    return 1
  })
  const seconds = ((performance.now() - start) / 1000).toFixed(1)
  console.log(`${code === 0 ? 'pass' : 'FAIL'}  ${name}  ${seconds} s`)
  if (code !== 0) failed.push(name)
}
console.log(
  failed.length === 0 ? 'all checks passed' : `failed: ${failed.join(', ')} (output above)`,
)
process.exitCode = failed.length === 0 ? 0 : 1
