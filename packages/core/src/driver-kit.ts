/** What a driver author needs beside the main entry: the contract and its helpers. */
export type * from './admin.js'
export type * from './capabilities.js'
export type * from './circuits.js'
export type * from './dead-letter.js'
export type * from './driver.js'
export { wrapDriverError } from './errors.js'
export { decodeFailure, encodeFailure } from './failure-headers.js'
export { newId, noHeaders, reservedPrefix, type WireMessage } from './message.js'
