import { Random } from './random.js'

/** What a handler does in one execution. */
export type StepKind =
  | 'ok'
  | 'transient'
  | 'permanent'
  | 'later'
  | 'later-uncounted'
  | 'non-error'
  | 'timeout'
  | 'crash'
  | 'ack-then-throw'
  | 'ctx-retry'
  | 'ctx-dead-letter'
  | 'settle-twice'

export interface Step {
  readonly kind: StepKind
  /** Virtual milliseconds before it does so; 0: at once, without a promise where it can. */
  readonly ms: number
  /** Ends its wait when `ctx.signal` aborts. */
  readonly heeds: boolean
}

export interface GroupPlan {
  readonly id: string
  readonly topic: string
  readonly name: string
  readonly mode: 'single' | 'batch' | 'consume'
  readonly order: 'none' | 'key'
  readonly onKeyFailure: 'block' | 'park' | 'skip'
  readonly coolDown: number | undefined
  readonly concurrency: number
  readonly prefetch: number | undefined
  readonly attempts: number
  readonly base: number
  readonly factor: number
  readonly max: number
  readonly jitter: number | 'full'
  readonly immediate: number
  readonly maxDeliveries: number
  readonly lease: number
  readonly timeout: number | undefined
  readonly killSwitch: boolean
  readonly batchSize: number
  readonly batchWait: number
  readonly from: 'latest' | 'earliest'
}

export interface MessagePlan {
  readonly n: number
  readonly topic: string
  readonly key: string | undefined
  readonly delay: number
}

export type Action =
  | {
      readonly do: 'publish'
      readonly publisher: number
      readonly topic: string
      readonly batch: boolean
      readonly messages: readonly MessagePlan[]
    }
  | { readonly do: 'foreign'; readonly message: MessagePlan }
  | { readonly do: 'join'; readonly group: GroupPlan }
  | { readonly do: 'leave'; readonly group: GroupPlan; readonly timeout: number }
  | { readonly do: 'crash'; readonly group: GroupPlan }
  | { readonly do: 'pause'; readonly group: GroupPlan; readonly ms: number }
  | { readonly do: 'sever' }
  | { readonly do: 'restart' }
  | { readonly do: 'outage'; readonly ms: number }
  | { readonly do: 'redrive'; readonly group: GroupPlan; readonly limit: number | undefined }
  | {
      readonly do: 'close-circuit'
      readonly group: GroupPlan
      readonly key: string
      readonly redrive: boolean
    }
  | { readonly do: 'cancel'; readonly message: MessagePlan }

export interface Plan {
  readonly seed: number
  /** `calm`: no faults, only failing handlers and graceful coming and going. */
  readonly weather: 'calm' | 'mild' | 'wild'
  /** Share of driver calls that something happens to. */
  readonly faultRate: number
  readonly partitions: number
  readonly topics: readonly string[]
  readonly groups: readonly GroupPlan[]
  readonly publishers: number
  readonly deadline: number
  readonly buffer:
    | { readonly max: number; readonly policy: 'block' | 'drop-oldest' | 'drop-newest' }
    | undefined
  /** In the order of their times. */
  readonly actions: readonly (Action & { readonly at: number })[]
  /** When the faults stop. */
  readonly endsAt: number
}

/** Longer than any handler of a plan takes; closing with it must drain. */
export const patientMs = 60_000

export function makePlan(seed: number): Plan {
  const random = new Random(seed)
  const weather = random.weighted({ calm: 1, mild: 2, wild: 2 })
  const topics = Array.from({
    length: Number(random.weighted({ 1: 7, 2: 2, 3: 1 })),
  }).map((_, i) => `t${i}`)
  const groups = topics.flatMap((topic) =>
    Array.from({ length: Number(random.weighted({ 1: 6, 2: 2, 3: 1 })) }, (_, i) =>
      makeGroup(random, topic, `g${i}`),
    ),
  )
  const endsAt = random.int(1000, 6000)
  const actions: (Action & { at: number })[] = []
  const at = () => random.int(0, endsAt)
  const keys = Array.from({ length: random.int(1, 6) }, (_, i) => `k${i}`)
  const publishers = random.int(1, 2)
  const messages: MessagePlan[] = []
  for (let left = random.chance(0.1) ? random.int(40, 80) : random.int(8, 40); left > 0; ) {
    const topic = random.pick(topics)
    const size = Math.min(left, random.chance(0.5) ? 1 : random.int(2, 8))
    left -= size
    const when = at()
    const some = Array.from({ length: size }, (): MessagePlan => {
      const key = random.chance(0.8) ? random.pick(keys) : undefined
      const delay = random.chance(0.12) ? random.int(1, 1500) : 0
      const message = { n: messages.length, topic, key, delay }
      messages.push(message)
      return message
    })
    const publisher = random.int(0, publishers - 1)
    actions.push({ at: when, do: 'publish', publisher, topic, batch: size > 1, messages: some })
  }
  if (random.chance(0.2)) {
    const key = random.chance(0.5) ? random.pick(keys) : undefined
    const message = { n: messages.length, topic: random.pick(topics), key, delay: 0 }
    actions.push({ at: at(), do: 'foreign', message })
  }
  for (const message of messages) {
    if (message.delay > 0 && random.chance(0.1)) actions.push({ at: at(), do: 'cancel', message })
  }
  for (const group of groups) {
    const first = random.chance(0.75) ? 0 : at()
    for (let i = random.int(1, 3); i > 0; i--) {
      actions.push({ at: i === 1 ? first : at(), do: 'join', group })
    }
    for (let i = random.int(0, 3); i > 0; i--)
      actions.push({ at: at(), ...change(random, group, keys, weather) })
  }
  if (weather !== 'calm') {
    for (let i = random.int(0, weather === 'wild' ? 4 : 2); i > 0; i--) {
      actions.push({ at: at(), ...disaster(random) })
    }
  }
  actions.sort((a, b) => a.at - b.at)
  return {
    seed,
    weather,
    faultRate: weather === 'calm' ? 0 : weather === 'mild' ? 0.02 : 0.12,
    partitions: random.chance(0.5) ? 0 : random.int(1, 4),
    topics,
    groups,
    publishers,
    deadline: random.int(500, 5000),
    buffer: random.chance(0.2)
      ? {
          max: random.int(1, 6),
          policy: random.pick(['block', 'drop-oldest', 'drop-newest'] as const),
        }
      : undefined,
    actions,
    endsAt,
  }
}

function makeGroup(random: Random, topic: string, name: string): GroupPlan {
  const order = random.chance(0.7) ? 'key' : 'none'
  const onKeyFailure = order === 'key' ? random.pick(['block', 'park', 'skip'] as const) : 'block'
  const parks = order === 'key' && onKeyFailure === 'park'
  const concurrency = random.int(1, 5)
  const mode = random.weighted({ single: 5, batch: 2, consume: 2 })
  return {
    id: `${topic}/${name}`,
    topic,
    name,
    mode,
    order,
    onKeyFailure,
    coolDown: parks && random.chance(0.5) ? random.int(20, 1000) : undefined,
    concurrency,
    prefetch: random.chance(0.5) ? undefined : random.int(1, 12),
    attempts: random.int(1, 4),
    base: random.pick([0, 5, 50, 200]),
    factor: random.pick([1, 2, 3]),
    max: random.pick([100, 1000]),
    jitter: random.pick([0, 0.1, 0.5, 'full'] as const),
    immediate: random.chance(0.15) ? random.int(1, 2) : 0,
    maxDeliveries: random.chance(0.2) ? random.int(1, 3) : 20,
    lease: random.pick([240, 600, 2000, 30_000]),
    timeout: mode !== 'consume' && random.chance(0.3) ? random.int(20, 150) : undefined,
    killSwitch: random.chance(0.15),
    batchSize: random.int(1, 5),
    batchWait: random.int(1, 60),
    from: random.chance(0.3) ? 'earliest' : 'latest',
  }
}

function change(
  random: Random,
  group: GroupPlan,
  keys: readonly string[],
  weather: Plan['weather'],
): Action {
  const what = random.weighted({
    leave: 3,
    join: 2,
    pause: 1,
    redrive: 2,
    'close-circuit': group.onKeyFailure === 'park' ? 4 : 0,
    crash: weather === 'calm' ? 0 : 2,
  })
  switch (what) {
    case 'leave': {
      const patient = weather === 'calm' || random.chance(0.6)
      return { do: what, group, timeout: patient ? patientMs : random.int(0, 100) }
    }
    case 'pause':
      return { do: what, group, ms: random.int(1, 500) }
    case 'redrive':
      return { do: what, group, limit: random.chance(0.5) ? undefined : random.int(1, 3) }
    case 'close-circuit':
      return { do: what, group, key: random.pick(keys), redrive: random.chance(0.5) }
    default:
      return { do: what, group }
  }
}

function disaster(random: Random): Action {
  const what = random.pick(['sever', 'restart', 'outage'] as const)
  return what === 'outage' ? { do: what, ms: random.int(1, 2000) } : { do: what }
}

const mishaps: Partial<Record<StepKind, number>> = {
  transient: 6,
  'non-error': 2,
  later: 2,
  'later-uncounted': 1,
  timeout: 2,
  'ack-then-throw': 1,
  'ctx-retry': 1,
  'ctx-dead-letter': 1,
  'settle-twice': 1,
}

/** What the handlers of a group do with a message, execution by execution; after these all goes well. */
export function stepsOf(plan: Plan, group: GroupPlan, n: number): (execution: number) => Step {
  const random = new Random(`${plan.seed}:${group.id}:${n}`)
  const fate = random.weighted({
    good: 70,
    flaky: 22,
    permanent: 4,
    poison: plan.weather === 'calm' ? 0 : 4,
  })
  const longest = Math.min(400, (group.timeout ?? 1000) - 1)
  const ms = () =>
    random.chance(0.3) ? 0 : random.int(1, random.chance(0.1) ? longest : Math.min(60, longest))
  const make = (kind: StepKind): Step => {
    const late = kind === 'timeout' && group.timeout !== undefined
    const usable = kind === 'timeout' && !late ? 'transient' : kind
    return {
      kind: usable,
      ms: late ? (group.timeout ?? 0) + random.int(1, 200) : ms(),
      heeds: random.chance(0.6),
    }
  }
  const first: Step[] = []
  if (fate === 'flaky') {
    for (let i = random.int(1, 5); i > 0; i--) first.push(make(random.weighted(mishaps)))
  } else if (fate === 'poison') {
    for (let i = random.int(1, 2); i > 0; i--) first.push(make('crash'))
  }
  const rest = make(fate === 'permanent' ? 'permanent' : 'ok')
  return (execution) => first[execution] ?? rest
}
