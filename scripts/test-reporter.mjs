// A vitest reporter that counts tests and writes the counts to the file named by LONGSHORE_TEST_SUMMARY.
import { writeFileSync } from 'node:fs'
import { relative } from 'node:path'
import { root } from './bootstrap.mjs'

/**
 * @typedef {object} Summary
 * @property {number} passed
 * @property {number} failed tests, plus files and hooks that failed by themselves, plus errors outside any test
 * @property {number} skipped
 * @property {{ test: string, reason: string | undefined }[]} skips
 */

export default class SummaryReporter {
  /**
   * @param {ReadonlyArray<import('vitest/node').TestModule>} modules
   * @param {ReadonlyArray<unknown>} unhandled
   */
  onTestRunEnd(modules, unhandled) {
    /** @type {Summary} */
    const summary = { passed: 0, failed: unhandled.length, skipped: 0, skips: [] }
    for (const module of modules) {
      // A file or a hook that fails takes its tests with it, so it counts itself.
      summary.failed += module.errors().length > 0 ? 1 : 0
      for (const suite of module.children.allSuites()) {
        summary.failed += suite.errors().length > 0 ? 1 : 0
      }
      for (const test of module.children.allTests()) {
        const result = test.result()
        if (result.state === 'passed') summary.passed++
        else if (result.state === 'failed') summary.failed++
        else {
          summary.skipped++
          const reason = result.state === 'skipped' ? result.note : 'it was not run'
          const where = relative(root, module.moduleId)
          summary.skips.push({ test: `${where} > ${test.fullName}`, reason })
        }
      }
    }
    const file = process.env.LONGSHORE_TEST_SUMMARY
    if (file) writeFileSync(file, JSON.stringify(summary))
  }
}
