// Installs what is missing and builds every package whose sources changed.
import { bootstrap } from './bootstrap.mjs'

await bootstrap()
