import { slowConsumer } from './backlog.js'
import { endToEnd } from './end-to-end.js'
import { fixedRate } from './latency.js'
import { publish } from './publish.js'
import type { Scenario } from './scenario.js'

export { brokerScenarios } from './broker.js'

export const memoryScenarios: readonly Scenario[] = [
  ...endToEnd,
  ...publish,
  slowConsumer,
  fixedRate,
]
