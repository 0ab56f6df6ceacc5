import { defineConfig } from 'vitest/config'

const conditions = ['longshore-source', 'module', 'node', 'development|production']

/** Files that break brokers of their own. They mostly wait, and measure, so they come after all others, some at once. */
const breaking = ['test/conformance/rabbitmq*.test.ts', 'test/faults/**/*.test.ts']

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    testTimeout: 30_000,
    hookTimeout: 120_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'main',
          include: [
            'packages/*/src/**/*.test.ts',
            'examples/*/src/**/*.test.ts',
            'bench/src/**/*.test.ts',
            'test/**/*.test.ts',
          ],
          exclude: ['**/node_modules/**', ...breaking],
        },
      },
      {
        extends: true,
        test: {
          name: 'breaking',
          include: breaking,
          globalSetup: './test/faults/setup.ts',
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
})
