import type { DriverModule } from '@longshore/core/driver'
import { RabbitmqDriver } from './driver.js'
import type { RabbitmqOptions } from './options.js'
import { optionNames, resolveSettings } from './settings.js'

export type { DelayedGroup, RabbitmqConnection } from './driver.js'
export type { RabbitmqOptions, TlsOptions } from './options.js'
export { slotOf } from './settings.js'

declare module '@longshore/core' {
  interface DriverOptions {
    rabbitmq: RabbitmqOptions
  }
}

/** The RabbitMQ driver, for RabbitMQ 3.10 and later, by AMQP 0-9-1. */
export const driver: DriverModule<RabbitmqOptions> = {
  name: 'rabbitmq',
  schemes: ['amqp', 'amqps'],
  options: optionNames,
  async connect(config) {
    const rabbitmq = new RabbitmqDriver(config, resolveSettings(config))
    await rabbitmq.start()
    return rabbitmq
  },
}
