import type { CloseOptions } from '../api.js'
import { toMs } from '../duration.js'
import { checkOptions } from '../options.js'

/** How long closing waits for handlers unless told otherwise, in milliseconds. */
export const closeMs = 30_000

/** @throws OptionError, UnknownOptionError */
export function closeTimeout(options: CloseOptions = {}): number {
  checkOptions('close', options, ['timeout'])
  return toMs(options.timeout ?? closeMs, 'close timeout')
}
