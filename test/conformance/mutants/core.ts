// What the mutants need of the core, in one place.
export * from '@longshore/core'
export type * from '@longshore/core/driver'
