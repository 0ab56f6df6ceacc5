import { memoryTarget } from '@longshore/conformance'
import { conformance } from '@longshore/conformance/vitest'

conformance(memoryTarget('vitest'))
