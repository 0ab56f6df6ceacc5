// The main job: makes the clone ready, then streams real flights through typed topics (`--help` tells the options).
import { bootstrap } from './bootstrap.mjs'

await bootstrap()
await import(new URL('../examples/flights/dist/main.js', import.meta.url).href)
