import { rabbitmqTarget } from './lib/rabbitmq.mjs'

/** @param {import('./lib/rabbitmq.mjs').Brokers} brokers */
export default (brokers) => rabbitmqTarget('rabbitmq', brokers)
