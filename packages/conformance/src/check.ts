import type { Capabilities } from '@longshore/core'
import type { CheckContext } from './context.js'
import type { HookName, TargetHooks } from './target.js'

export const areas = [
  'fidelity',
  'publish',
  'settle',
  'redrive',
  'order',
  'load',
  'batch',
  'groups',
  'routing',
  'lifecycle',
  'connection',
  'delay',
  'options',
  'unsupported',
] as const

export type Area = (typeof areas)[number]

/** Abilities that a check may need, and how a driver declares each. */
export const features = {
  groups: (c) => c.groups,
  order: (c) => c.order !== 'none',
  'order across members': (c) => c.order === 'key',
  replay: (c) => c.replay,
  delay: (c) => c.delay > 0,
  cancelDelay: (c) => c.cancelDelay,
  deliveryCount: (c) => c.deliveryCount,
  lease: (c) => c.lease,
  autoCreate: (c) => c.autoCreate,
  priority: (c) => c.priority > 1,
  ttl: (c) => c.ttl,
  routing: (c) => c.routing !== 'none',
  'wildcard routing': (c) => c.routing === 'wildcard',
  dedupe: (c) => c.dedupe,
  deadLetters: (c) => c.deadLetters,
  circuits: (c) => c.circuits,
  admin: (c) => c.admin,
} as const satisfies Record<string, (capabilities: Capabilities) => boolean>

export type Feature = keyof typeof features

export interface Needs<Hook extends HookName = HookName> {
  readonly capabilities?: readonly Feature[]
  readonly hooks?: readonly Hook[]
  /** At least one of these. */
  readonly anyHook?: readonly HookName[]
}

interface Description {
  /** Stable, `area.what`. */
  readonly id: string
  readonly title: string
  readonly area: Area
  /** The number in the list of checks that this one belongs to; 0 for what is beyond it. */
  readonly ref: number
  /** It proves that nothing is lost: no capability may switch it off. */
  readonly noLoss?: boolean
  /** Default 30 s. */
  readonly timeoutMs?: number
  /**
   * `quiet`: it measures time, so nothing heavy runs beside it. `alone`: it disturbs the broker or measures the process.
   * Default: beside others.
   */
  readonly schedule?: 'quiet' | 'alone'
  /** Left out unless this holds. For checks of what a driver does *not* declare. */
  readonly applies?: (capabilities: Capabilities) => boolean
}

export interface Check extends Description {
  readonly needs: Needs
  run(context: CheckContext): Promise<void>
  /** Runs in place of `run` where a needed capability is not declared. */
  readonly otherwise?: (context: CheckContext) => Promise<void>
}

/** The context of a check that named these hooks as needed: they are there. */
export type ContextWith<Hook extends HookName> = Omit<CheckContext, 'hooks'> & {
  readonly hooks: TargetHooks & { readonly [Name in Hook]-?: NonNullable<TargetHooks[Name]> }
}

export interface CheckSpec<Hook extends HookName> extends Description {
  readonly needs?: Needs<Hook>
  run(context: ContextWith<Hook>): Promise<void>
  readonly otherwise?: (context: CheckContext) => Promise<void>
}

/** Defines a check. The hooks that it needs are known to be there in its `run`. */
export function check<const Hook extends HookName = never>(spec: CheckSpec<Hook>): Check {
  if (spec.noLoss && spec.needs?.capabilities && !spec.otherwise) {
    throw new TypeError(`${spec.id}: a no-loss check needs 'otherwise' where it needs a capability`)
  }
  // The runner calls `run` only where all needs are met, so the narrower context is what it gets.
  return { needs: {}, ...spec } as unknown as Check
}

/** Why this check can't run here, or undefined if it can. */
export function unmet(
  subject: Check,
  hooks: TargetHooks,
  capabilities: Capabilities,
): string | undefined {
  const { needs } = subject
  const undeclared = (needs.capabilities ?? []).filter((name) => !features[name](capabilities))
  if (undeclared.length > 0 && !subject.otherwise) {
    return `the driver does not declare ${list(undeclared)}`
  }
  const absent = (needs.hooks ?? []).filter((name) => hooks[name] === undefined)
  if (absent.length > 0) return `the target has no hook ${list(absent)}`
  const any = needs.anyHook ?? []
  if (any.length > 0 && any.every((name) => hooks[name] === undefined)) {
    return `the target has none of the hooks ${list(any)}`
  }
  return undefined
}

/** Whether `otherwise` takes the place of `run`. */
export function isUndeclared(subject: Check, capabilities: Capabilities): boolean {
  return (subject.needs.capabilities ?? []).some((name) => !features[name](capabilities))
}

function list(names: readonly string[]): string {
  return names.map((name) => `'${name}'`).join(', ')
}
