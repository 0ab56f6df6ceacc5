import { docker, dockerAnswers } from './docker.mjs'
import { BrokerError } from './errors.mjs'
import { kafka } from './kafka.mjs'
import { environmentUrl, environmentVariable, kindOf } from './names.mjs'
import { native } from './native.mjs'
import { nats } from './nats.mjs'
import { postgres } from './postgres.mjs'
import { rabbitmq } from './rabbitmq.mjs'
import { redis } from './redis.mjs'
import { readState } from './state.mjs'

const DEFINITIONS = { rabbitmq, nats, kafka, postgres, redis }

/** @param {string} name */
export function definitionOf(name) {
  return DEFINITIONS[kindOf(name)]
}

function forced() {
  const value = process.env.LONGSHORE_BROKERS || undefined
  if (value === undefined || value === 'docker' || value === 'native') return value
  throw new BrokerError('BROKER_CONFIG', `LONGSHORE_BROKERS is '${value}'; set docker or native`)
}

/**
 * Where a broker comes from: the environment, or else where it runs already, or else Docker if an
 * engine answers, or else this system.
 * @param {string} name
 * @returns {Promise<import('./types.mjs').Source>}
 */
export async function sourceOf(name) {
  if (environmentUrl(name)) return 'env'
  const state = readState(name)
  const must = forced()
  const { running } =
    state?.source === 'native' ? await native.inspect(definitionOf(name), name) : { running: false }
  if (running && must !== 'docker') return 'native'
  if (running) {
    throw new BrokerError(
      'BROKER_CONFIG',
      `${name} runs natively though LONGSHORE_BROKERS=docker; unset it and run down first`,
    )
  }
  if (must === 'native') return 'native'
  if (await dockerAnswers()) return 'docker'
  if (must === undefined) return 'native'
  const cure = 'start Docker, or unset LONGSHORE_BROKERS'
  throw new BrokerError('BROKER_UNAVAILABLE', `no Docker engine with Compose answers; ${cure}`)
}

/**
 * What starts and ends the broker; a server of the user's own is left alone.
 * @param {string} name
 */
export async function managerOf(name) {
  const source = await sourceOf(name)
  if (source !== 'env') return source === 'docker' ? docker : native
  throw new BrokerError(
    'BROKER_NOT_MANAGED',
    `${name} comes from ${environmentVariable(name)} and is not managed here; unset that first`,
  )
}
