// The seeded simulation: `npm run simulate -- --seed 42 --trace` (`--help` tells the options).
import { bootstrap, root } from './bootstrap.mjs'

await bootstrap()
const { createServer } = await import('vite')
const conditions = ['longshore-source', 'module', 'node', 'development|production']
// Runs the TypeScript sources, as the tests do.
const server = await createServer({
  root,
  configFile: false,
  logLevel: 'error',
  appType: 'custom',
  optimizeDeps: { noDiscovery: true },
  server: { middlewareMode: true, hmr: false, ws: false, watch: null },
  resolve: { conditions },
  ssr: { resolve: { conditions } },
})
try {
  const { main } = await server.ssrLoadModule('/test/simulation/cli.ts')
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : error}\n`)
  const { code } = /** @type {{ code?: unknown }} */ (error)
  process.exitCode = String(code).startsWith('ERR_PARSE_ARGS') ? 2 : 1
} finally {
  await server.close()
}
