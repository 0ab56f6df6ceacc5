import { apart } from '../conformance/targets/lib/apart.js'
import { rabbitmqTarget } from '../conformance/targets/lib/rabbitmq.mjs'
import { faults } from './matrix.js'

const target = await apart('rabbitmq@next', 'faults', rabbitmqTarget)
if (target) faults(target)
