// The benchmark: `npm run bench -- --driver memory` (`--help` tells the options).
import { bootstrap } from './bootstrap.mjs'

await bootstrap()
await import(new URL('../bench/dist/main.js', import.meta.url).href)
