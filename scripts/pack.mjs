// Packs the public packages as they would be published.
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { dataFolder, pnpm, root } from './bootstrap.mjs'

/** @typedef {{ name: string, folder: string, tarball: string }} Packed */

/** The packages that are published. */
function publicPackages() {
  return readdirSync(join(root, 'packages')).flatMap((entry) => {
    const folder = join(root, 'packages', entry)
    const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    return manifest.private ? [] : [{ name: String(manifest.name), folder }]
  })
}

/**
 * Builds nothing: what is in `dist` is packed.
 * @param {string} [destination] emptied first
 * @returns {Promise<Packed[]>}
 */
export async function pack(destination = join(dataFolder, 'packed')) {
  rmSync(destination, { recursive: true, force: true })
  mkdirSync(destination, { recursive: true })
  /** @type {Packed[]} */
  const packed = []
  for (const { name, folder } of publicPackages()) {
    const tarball = join(destination, `${name.replace('@', '').replace('/', '-')}.tgz`)
    const code = await pnpm(['--dir', folder, 'pack', '--out', tarball])
    if (code !== 0) throw new Error(`packing ${name} failed (exit code ${code})`)
    packed.push({ name, folder, tarball })
  }
  return packed
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await pack(process.argv[2])
