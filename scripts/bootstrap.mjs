// Makes a clone ready: pnpm (in the data folder, nothing global), dependencies, build.
// Plain Node without dependencies, so that it works before anything is installed.
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = dirname(dirname(fileURLToPath(import.meta.url)))
export const dataFolder = process.env.LONGSHORE_DATA ?? join(root, '.longshore')

const oldestNode = { major: 20, minor: 19 }

/** @typedef {{ quiet?: boolean, env?: Record<string, string | undefined> }} RunOptions */

/**
 * Runs a program in the repo's root and resolves with its exit code.
 * @param {string} command
 * @param {readonly string[]} args
 * @param {RunOptions} [options] `quiet` holds the output back unless the program fails
 * @returns {Promise<number>}
 */
export function run(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: root,
      stdio: options.quiet ? ['ignore', 'pipe', 'pipe'] : 'inherit',
      env: { ...process.env, ...options.env },
    })
    /** @type {Buffer[]} */
    const output = []
    child.stdout?.on('data', (chunk) => output.push(chunk))
    child.stderr?.on('data', (chunk) => output.push(chunk))
    const forward = (/** @type {NodeJS.Signals} */ signal) => child.kill(signal)
    process.on('SIGINT', forward)
    process.on('SIGTERM', forward)
    child.on('error', reject)
    child.on('close', (code, signal) => {
      process.off('SIGINT', forward)
      process.off('SIGTERM', forward)
      if (code !== 0) process.stderr.write(Buffer.concat(output))
      resolve(code ?? (signal === 'SIGINT' ? 130 : 1))
    })
  })
}

/** Node arguments that run a program installed by the repo, without a shell or PATH look-up.
 * @param {string} name the package's name
 * @param {string} [bin] the program's name, where the package has several
 */
export function tool(name, bin = name) {
  const folder = join(root, 'node_modules', name)
  const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const entry = typeof manifest.bin === 'string' ? manifest.bin : manifest.bin[bin]
  return join(folder, entry)
}

/** @param {string} text */
const say = (text) => process.stderr.write(`longshore: ${text}\n`)

/** @param {string} command @param {readonly string[]} args @param {string} what */
async function must(command, args, what) {
  const code = await run(command, args, { quiet: true, env: pnpmEnv() })
  if (code !== 0) {
    say(`${what} failed (exit code ${code}); its output is above`)
    process.exit(1)
  }
}

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const pnpmVersion = manifest.packageManager.split('@')[1].split('+')[0]
const toolFolder = join(dataFolder, 'tools', `pnpm-${pnpmVersion}`)
const binFolder = join(toolFolder, 'node_modules', '.bin')

function pnpmEnv() {
  return { PATH: `${binFolder}${delimiter}${process.env.PATH}`, TURBO_TELEMETRY_DISABLED: '1' }
}

/** @param {readonly string[]} args */
export async function pnpm(args) {
  return run(join(binFolder, 'pnpm'), args, { env: pnpmEnv() })
}

/** @param {string} name */
const stampFile = (name) => join(dataFolder, 'stamps', name)

/** @param {string} name @param {string} value */
function stamped(name, value) {
  return existsSync(stampFile(name)) && readFileSync(stampFile(name), 'utf8') === value
}

/** @param {string} name @param {string} value */
function stamp(name, value) {
  mkdirSync(join(dataFolder, 'stamps'), { recursive: true })
  writeFileSync(stampFile(name), value)
}

/** Every folder of the workspace that has a manifest. */
function workspaceFolders() {
  const found = ['bench']
  for (const parent of ['packages', 'examples']) {
    if (!existsSync(join(root, parent))) continue
    for (const name of readdirSync(join(root, parent))) found.push(join(parent, name))
  }
  return found.filter((folder) => existsSync(join(root, folder, 'package.json')))
}

/** @param {string} folder @param {(path: string) => void} visit */
function walk(folder, visit) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) walk(path, visit)
    else visit(path)
  }
}

function manifestHash() {
  const hash = createHash('sha256')
  const files = ['package.json', 'pnpm-lock.yaml', 'pnpm-workspace.yaml']
  for (const file of [...files, ...workspaceFolders().map((f) => join(f, 'package.json'))]) {
    if (existsSync(join(root, file))) hash.update(readFileSync(join(root, file)))
  }
  return hash.digest('hex')
}

function sourceHash() {
  const hash = createHash('sha256')
  for (const folder of workspaceFolders()) {
    hash.update(existsSync(join(root, folder, 'dist')) ? 'built' : 'missing')
    for (const file of ['package.json', 'tsconfig.json']) {
      const path = join(root, folder, file)
      if (existsSync(path)) hash.update(readFileSync(path))
    }
    walk(join(root, folder, 'src'), (path) => {
      if (path.includes('.test')) return
      const { mtimeMs, size } = statSync(path)
      hash.update(`${path}:${mtimeMs}:${size}`)
    })
  }
  return hash.digest('hex')
}

/** Installs pnpm and the dependencies if they are missing or changed. */
export async function install() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major < oldestNode.major || (major === oldestNode.major && minor < oldestNode.minor)) {
    const oldest = `${oldestNode.major}.${oldestNode.minor}`
    say(`Node ${oldest} or newer is needed; this is ${process.versions.node}`)
    process.exit(1)
  }
  if (!existsSync(join(binFolder, 'pnpm'))) {
    say(`installing pnpm ${pnpmVersion} into ${toolFolder}`)
    mkdirSync(toolFolder, { recursive: true })
    writeFileSync(join(toolFolder, 'package.json'), '{ "private": true }\n')
    const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm'
    const args = ['install', '--prefix', toolFolder, '--no-audit', '--no-fund', '--loglevel=error']
    await must(npm, [...args, `pnpm@${pnpmVersion}`], 'installing pnpm')
  }
  const hash = manifestHash()
  if (!stamped('install', hash) || !existsSync(join(root, 'node_modules'))) {
    say('installing dependencies')
    rmSync(stampFile('build'), { force: true })
    await must(join(binFolder, 'pnpm'), ['install', '--frozen-lockfile'], 'pnpm install')
    stamp('install', hash)
  }
}

/** Builds every package whose sources changed. */
export async function build() {
  if (stamped('build', sourceHash())) return
  say('building')
  const args = [tool('turbo'), 'run', 'build', '--output-logs=errors-only', '--no-update-notifier']
  await must(process.execPath, args, 'the build')
  stamp('build', sourceHash())
}

export async function bootstrap() {
  await install()
  await build()
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await bootstrap()
