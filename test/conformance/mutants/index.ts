import { deadLetters } from './dead-letters.js'
import { delay } from './delay.js'
import { groups } from './groups.js'
import { order } from './order.js'
import { publish } from './publish.js'
import { retry } from './retry.js'
import { routing } from './routing.js'
import { settle } from './settle.js'
import type { Mutant } from './wrap.js'

export { type Mutant, wrongTarget } from './wrap.js'

export const mutants: readonly Mutant[] = [
  ...publish,
  ...settle,
  ...retry,
  ...deadLetters,
  ...order,
  ...groups,
  ...routing,
  ...delay,
]
