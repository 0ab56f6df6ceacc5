// Formats and sorts imports, and applies the safe fixes of the linter: everything, or the paths given.
import { install, run, tool } from './bootstrap.mjs'

await install()
const paths = process.argv.slice(2)
const args = ['check', '--write', ...(paths.length > 0 ? paths : ['.'])]
process.exitCode = await run(process.execPath, [tool('@biomejs/biome', 'biome'), ...args])
