import { memoryTarget } from '@longshore/conformance'
import { conformance } from '@longshore/conformance/vitest'

// With a window for repeated ids, so that 'dedupe' is declared and checked, too.
conformance(memoryTarget('vitest-partitioned', { partitions: 8, dedupeWindow: 60_000 }))
