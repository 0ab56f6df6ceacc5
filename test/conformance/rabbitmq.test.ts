import { conformance } from '@longshore/conformance/vitest'
import { apart } from './targets/lib/apart.js'
import { rabbitmqTarget } from './targets/lib/rabbitmq.mjs'

const target = await apart('rabbitmq', 'conformance', rabbitmqTarget)
if (target) conformance(target)
