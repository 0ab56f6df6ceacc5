export {
  type Area,
  areas,
  type Check,
  type CheckSpec,
  type ContextWith,
  check,
  type Feature,
  features,
  type Needs,
} from './check.js'
export { checks } from './checks/index.js'
export { FreezableClock } from './clock.js'
export { CheckContext, type Collected, type Network, type Seen } from './context.js'
export { CheckSkipped, ConformanceFailure, ensure, rejects, same, sameBytes } from './expect.js'
export { type Entry, Ledger, type LedgerCounts } from './ledger.js'
export { formatMatrix } from './matrix.js'
export { sharedTime } from './process/behave.js'
export { ConsumerProcess, type ConsumerProcessOptions } from './process/consumer-process.js'
export type { Handling, Member, MemberSpec } from './process/protocol.js'
export { type Direction, TcpProxy, type TcpProxyOptions } from './proxy.js'
export {
  type CheckResult,
  forDocs,
  formatResult,
  formatSummary,
  kitVersion,
  type Report,
} from './report.js'
export { examine, type RunOptions, runCheck, runConformance, type Subject, select } from './run.js'
export type {
  ConformanceTarget,
  HookName,
  NativeMessage,
  NativeReader,
  ProxyHook,
  Repair,
  TargetHooks,
  Tolerances,
} from './target.js'
export { memoryTarget } from './targets/memory.js'
export { type UntilOptions, until, within } from './until.js'
