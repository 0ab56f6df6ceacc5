import { BrokerError } from './errors.mjs'

/** @type {import('./types.mjs').Kind[]} */
const KINDS = ['rabbitmq', 'nats', 'kafka', 'postgres', 'redis']

/** The versions that users of a stable distribution have. */
export const BASE = KINDS.map(String)

/** The newest versions. */
export const NEXT = KINDS.map((kind) => `${kind}@next`)

export const BROKERS = [...BASE, ...NEXT]

/**
 * @param {string} name
 * @returns {import('./types.mjs').Kind}
 */
export function kindOf(name) {
  const kind = KINDS.find((kind) => kind === name || `${kind}@next` === name)
  if (kind) return kind
  throw new BrokerError('BROKER_UNKNOWN', `no broker '${name}'; there are ${BROKERS.join(', ')}`)
}

/** @param {string} name */
export function isNext(name) {
  return name.endsWith('@next')
}

/**
 * Rejects unknown names and drops repeated ones.
 * @param {readonly string[]} names
 */
export function checkNames(names) {
  for (const name of names) kindOf(name)
  return [...new Set(names)]
}

/**
 * The name as environment variables have it: `RABBITMQ`, `RABBITMQ_NEXT`.
 * @param {string} name
 */
export function environmentName(name) {
  return name.toUpperCase().replace('@', '_')
}

/** @param {string} name */
export function environmentVariable(name) {
  return `LONGSHORE_${environmentName(name)}_URL`
}

/**
 * The user's own server, if the environment names one.
 * @param {string} name
 */
export function environmentUrl(name) {
  return process.env[environmentVariable(name)] || undefined
}
