/** What users' own tests need: a bus whose time is under control, and ways to wait for what must happen. */
export type { MemoryBroker, MemoryConnection, MemoryFaults } from '../memory/index.js'
export {
  createTestBus,
  type Expectation,
  ExpectationError,
  type TestBus,
  type TestBusOptions,
} from './test-bus.js'
export { VirtualClock } from './virtual-clock.js'
