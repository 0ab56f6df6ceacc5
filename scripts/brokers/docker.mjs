import { join } from 'node:path'
import { BrokerError, noTool } from './errors.mjs'
import { BROKERS, environmentName } from './names.mjs'
import { dataHash, ROOT } from './paths.mjs'
import { allotPorts } from './ports.mjs'
import { lastLines, run, tryRun, which } from './run.mjs'
import { readState, writeState } from './state.mjs'

/** @type {Promise<boolean> | undefined} */
let answers

/** Whether a Docker engine answers and the Compose plugin is there. Asked once. */
export function dockerAnswers() {
  answers ??= ask()
  return answers
}

async function ask() {
  const docker = which('docker')
  if (!docker) return false
  const info = { command: docker, args: ['info', '--format', '{{.ServerVersion}}'] }
  const compose = { command: docker, args: ['compose', 'version'] }
  const results = await Promise.all([info, compose].map((c) => tryRun(c, { timeout: 3000 })))
  return results.every(({ code }) => code === 0) && (results[0]?.stdout.trim() ?? '') !== ''
}

/**
 * A `docker compose` command on our file, with every broker's port in the environment: Compose
 * makes a container anew when its settings differ from the last time's.
 * @param {string[]} args
 * @returns {import('./types.mjs').Command}
 */
function compose(args) {
  const ports = BROKERS.flatMap((name) => {
    const state = readState(name)
    return state ? [[`LONGSHORE_${environmentName(name)}_PORT`, String(state.ports.main)]] : []
  })
  const project = `longshore-${dataHash()}`
  const file = join(ROOT, 'compose.yaml')
  return {
    command: 'docker',
    args: ['compose', '-f', file, '-p', project, '--profile', 'next', ...args],
    env: Object.fromEntries(ports),
  }
}

/** @param {string} name */
function service(name) {
  return name.replace('@', '-')
}

/**
 * The container's state as Docker tells it, undefined when there is none.
 * @param {string} name
 * @returns {Promise<{ State: string, Image: string } | undefined>}
 */
async function container(name) {
  const { code, stdout } = await tryRun(compose(['ps', '-a', '--format', 'json', service(name)]))
  if (code !== 0 || stdout.trim() === '') return undefined
  // An array or one object a line, depending on the plugin's version.
  const text = stdout.trim()
  const parsed = JSON.parse(text.startsWith('[') ? text : `[${text.split('\n').join(',')}]`)
  return parsed[0]
}

/**
 * @param {string} name
 * @param {string[]} args
 * @param {AbortSignal} [signal]
 */
function command(name, args, signal) {
  return run(compose([...args, service(name)]), {
    what: `docker compose ${args[0]} ${service(name)}`,
    cure: 'see the lines below; LONGSHORE_BROKERS=native does without Docker',
    ...(signal ? { signal } : {}),
  })
}

/** Servers in containers, by `compose.yaml`. @type {import('./types.mjs').Manager} */
export const docker = {
  async start(definition, name, { log, signal }) {
    const before = readState(name)
    const found = await container(name)
    if (before && found?.State === 'running') return before
    const tell = (/** @type {string} */ line) => log?.(`${name}: ${line}`)
    const { main = 0 } = await allotPorts(['main'], before?.ports ?? {}, tell)
    writeState(name, { source: 'docker', ports: { main } })
    if (!found) tell('starting its container (the image is fetched once)')
    await command(name, ['up', '-d', '--no-deps'], signal)
    const args = ['port', service(name), String(definition.containerPort)]
    const { stdout } = await run(compose(args), {
      what: `docker compose port ${service(name)}`,
      cure: 'is the container running? try: docker compose logs',
      ...(signal ? { signal } : {}),
    })
    const port = Number(/:(\d+)\s*$/.exec(stdout)?.[1])
    const tag = (await container(name))?.Image.split(':').pop()
    /** @type {import('./types.mjs').State} */
    const state = {
      source: 'docker',
      ports: { main: port || main },
      startedAt: Date.now(),
      installed: tag,
    }
    writeState(name, state)
    return state
  },

  async stop(_definition, name, hard) {
    const found = await container(name)
    if (found?.State === 'paused') await command(name, ['unpause'])
    if (found) await command(name, hard ? ['kill'] : ['stop'])
    const state = readState(name)
    if (state) writeState(name, { ...state, startedAt: undefined })
    return found?.State === 'running' || found?.State === 'paused'
  },

  async pause(_definition, name) {
    await requireRunning(name)
    await command(name, ['pause'])
  },

  async resume(_definition, name) {
    await requireRunning(name)
    await command(name, ['unpause'])
  },

  async inspect(_definition, name) {
    const state = (await container(name))?.State
    return { running: state === 'running' || state === 'paused', paused: state === 'paused' }
  },

  async logs(_definition, name, lines) {
    const args = ['logs', '--no-color', '--tail', String(lines), service(name)]
    return lastLines((await tryRun(compose(args))).output, lines)
  },

  async tool(definition, name, args) {
    await requireRunning(name)
    if (!definition.tool) throw noTool(name)
    return compose(['exec', '-T', service(name), definition.tool.containerProgram, ...args])
  },
}

/** @param {string} name */
async function requireRunning(name) {
  const state = (await container(name))?.State
  if (state === 'running' || state === 'paused') return
  throw new BrokerError('BROKER_NOT_RUNNING', `${name} is not running; start it first`)
}
