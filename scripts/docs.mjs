// Generates the API reference of the public packages into docs/api, which git ignores. Warnings are errors.
import { bootstrap, run, tool } from './bootstrap.mjs'

await bootstrap()
process.exitCode = await run(process.execPath, [tool('typedoc'), ...process.argv.slice(2)])
