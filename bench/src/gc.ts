import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** Bytes in use once all garbage is gone, bodies outside the heap included. */
export function heapAfterGc(): number {
  // Twice: the first one spares what was garbage only after an incremental one had begun.
  collect()
  collect()
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}

export function collectGarbage(): void {
  collect()
}
