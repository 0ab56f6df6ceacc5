import type { Check } from '@longshore/conformance'
import type { FaultTarget } from '../target.js'
import { broker } from './broker.js'
import { consumers } from './consumers.js'
import { draining } from './draining.js'
import { members } from './members.js'
import { memoryAlarm } from './memory-alarm.js'
import { network } from './network.js'
import { poisonHeads } from './poison.js'
import { redrive } from './redrive.js'
import { topology } from './topology.js'

/** Every fault of the matrix, for this driver. */
export const cells = (target: FaultTarget): readonly Check[] => [
  ...consumers,
  ...broker(target),
  ...network,
  ...memoryAlarm(target),
  ...poisonHeads,
  ...redrive,
  ...draining,
  ...topology,
  ...members,
]
