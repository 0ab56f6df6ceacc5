import type { Check } from '../check.js'
import { batch } from './batch.js'
import { buffer } from './buffer.js'
import { connection } from './connection.js'
import { crash } from './crash.js'
import { deadletters } from './deadletters.js'
import { delay } from './delay.js'
import { fidelity } from './fidelity.js'
import { groups } from './groups.js'
import { headers } from './headers.js'
import { interop } from './interop.js'
import { lifecycle } from './lifecycle.js'
import { load } from './load.js'
import { options } from './options.js'
import { order } from './order.js'
import { outcomes } from './outcomes.js'
import { park } from './park.js'
import { publish } from './publish.js'
import { redrive } from './redrive.js'
import { retry } from './retry.js'
import { routing } from './routing.js'
import { settle } from './settle.js'
import { unsupported } from './unsupported.js'

/** Every check of the kit. Ids are stable: they are only ever added. */
export const checks: readonly Check[] = [
  ...fidelity,
  ...headers,
  ...interop,
  ...publish,
  ...outcomes,
  ...buffer,
  ...settle,
  ...retry,
  ...crash,
  ...deadletters,
  ...redrive,
  ...order,
  ...park,
  ...load,
  ...batch,
  ...groups,
  ...routing,
  ...lifecycle,
  ...connection,
  ...delay,
  ...options,
  ...unsupported,
]
