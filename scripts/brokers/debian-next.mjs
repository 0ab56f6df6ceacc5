import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { debianMirror, hasApt, installPackages } from './apt.mjs'
import { BrokerError } from './errors.mjs'
import { downloads, makeDir } from './paths.mjs'
import { isRoot, run, which } from './run.mjs'
import { withDownloadLock } from './state.mjs'

/**
 * The newer servers come from Debian 13, unpacked in a folder, and run inside it by chroot. All
 * mounts are made in a mount namespace of the server's own: the system never sees them, and they
 * go with the server.
 */
const RELEASE = 'trixie'
const PACKAGES = ['rabbitmq-server', 'redis-server', 'postgresql-17', 'postgresql-17-wal2json']

/** Where a server inside finds its broker's folder. */
const INSIDE = '/srv'

const BUILD = `set -e
target=$(mktemp -d)
trap 'umount -R "$target"; rmdir "$target"' EXIT
mount --bind "$1" "$target"
debootstrap --variant=minbase "$2" "$target" "$3"
printf '#!/bin/sh\\nexit 101\\n' > "$target/usr/sbin/policy-rc.d"
chmod 755 "$target/usr/sbin/policy-rc.d"
mkdir -p "$target/etc/postgresql-common"
echo 'create_main_cluster = false' > "$target/etc/postgresql-common/createcluster.conf"
cp /etc/hosts "$target/etc/hosts"
shift 3
mountpoint -q "$target/proc" || mount -t proc proc "$target/proc"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
chroot "$target" apt-get -q update
chroot "$target" apt-get -y -q --no-install-recommends install "$@"
chroot "$target" apt-get clean
rm -rf "$target"/var/lib/apt/lists/*
`

const ENTER = `set -e
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --bind "$2" "$1${INSIDE}"
root=$1 user=$3 cwd=$4
shift 4
exec chroot --userspec="$user" "$root" env -C "$cwd" "$@"
`

function rootDir() {
  return downloads('debian-13')
}

/** Why the folder can't be had on this system, if so. */
export function nextUnavailable() {
  const newest = 'the newer server comes from a Debian 13 folder, which needs'
  if (!isRoot()) return `${newest} root; run as root, or set its URL in the environment`
  if (!hasApt() || !which('unshare') || !which('chroot')) {
    return `${newest} Debian's apt, unshare and chroot; set its URL in the environment`
  }
  return undefined
}

/**
 * Makes the folder, once. Built aside and renamed, so that one cut short is not taken for whole.
 * @param {import('./types.mjs').Options} options
 */
export async function installDebianNext(options) {
  if (existsSync(join(rootDir(), 'longshore.json'))) return
  const reason = nextUnavailable()
  if (reason) throw new BrokerError('BROKER_UNAVAILABLE', reason)
  await installPackages(['debootstrap'], options)
  await withDownloadLock('debian-13', options, async () => {
    if (existsSync(join(rootDir(), 'longshore.json'))) return
    const mirror = await debianMirror()
    if (!mirror) {
      throw new BrokerError(
        'BROKER_UNAVAILABLE',
        "apt's sources name no Debian archive; set the newer server's URL in the environment",
      )
    }
    options.log?.('unpacking Debian 13 for the newer servers (about a minute, once)')
    const building = `${rootDir()}.tmp`
    rmSync(building, { recursive: true, force: true })
    mkdirSync(building, { recursive: true, mode: 0o755 })
    const args = ['--mount', 'sh', '-c', BUILD, 'sh', building, RELEASE, mirror, ...PACKAGES]
    await run(
      { command: 'unshare', args, env: { TMPDIR: '/tmp' } },
      {
        what: 'making the Debian 13 folder',
        cure: 'see the lines below; it needs root, mount rights and the Debian archive',
        ...(options.signal ? { signal: options.signal } : {}),
      },
    )
    writeFileSync(join(building, 'longshore.json'), JSON.stringify({ packages: PACKAGES }))
    rmSync(rootDir(), { recursive: true, force: true })
    renameSync(building, rootDir())
  })
}

/**
 * Runs programs inside the folder.
 * @param {string} dir the broker's own folder
 * @returns {import('./types.mjs').Runner}
 */
export function nextRunner(dir) {
  makeDir(dir)
  return {
    dir: INSIDE,
    host: (path) =>
      path.startsWith(`${INSIDE}/`) ? join(dir, path.slice(INSIDE.length)) : join(rootDir(), path),
    wrap({ command, args, cwd, env, user }) {
      const enter = [rootDir(), dir, user ? `${user}:${user}` : 'root:root', cwd ?? INSIDE]
      return {
        command: 'unshare',
        args: ['--mount', 'sh', '-c', ENTER, 'sh', ...enter, command, ...args],
        env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8', ...env },
      }
    },
  }
}
