import { defineConfig } from 'vitest/config'

export default defineConfig({
  resolve: { conditions: ['longshore-source', 'module', 'node', 'development|production'] },
  ssr: {
    resolve: { conditions: ['longshore-source', 'module', 'node', 'development|production'] },
  },
  test: {
    include: [
      'packages/*/src/**/*.test.ts',
      'examples/*/src/**/*.test.ts',
      'bench/src/**/*.test.ts',
      'test/**/*.test.ts',
    ],
    testTimeout: 30_000,
    hookTimeout: 120_000,
  },
})
