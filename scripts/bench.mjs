// The benchmark: `npm run bench -- --driver memory` (`--help` tells the options).
import { bootstrap } from './bootstrap.mjs'
import { up } from './brokers/index.mjs'

/** @param {string} name */
async function bringUp(name) {
  const log = (/** @type {string} */ line) => console.error(line)
  const [broker] = await up([name], { log })
  return broker
}

await bootstrap()
const { main } = await import(new URL('../bench/dist/main.js', import.meta.url).href)
process.exitCode = await main(process.argv.slice(2), bringUp)
