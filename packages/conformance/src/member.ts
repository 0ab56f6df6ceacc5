import type { CheckContext } from './context.js'
import type { Entry } from './ledger.js'
import { behave } from './process/behave.js'
import { ConsumerProcess } from './process/consumer-process.js'
import type { Handling, Member, MemberSpec, Report } from './process/protocol.js'

/** A member that can be killed, by the means that the target has. */
export async function startMember(context: CheckContext, spec: MemberSpec): Promise<Member> {
  const { program, crash } = context.hooks
  if (program !== undefined) {
    const member = await ConsumerProcess.start({ program, spec })
    context.defer(() => member.kill())
    return member
  }
  if (crash === undefined) throw new TypeError(`neither hook 'program' nor 'crash' is there`)
  return startHere(context, spec, crash)
}

/** In this process, on a connection that crashes instead of a process that is killed. */
async function startHere(
  context: CheckContext,
  spec: MemberSpec,
  crash: NonNullable<CheckContext['hooks']['crash']>,
): Promise<Member> {
  const started: Handling[] = []
  const handled: Handling[] = []
  const confirmed: Entry[] = []
  const errors: string[] = []
  const released = new AbortController()
  let dead = false
  const bus = await context.connect()
  const kill = async () => {
    if (dead) return
    dead = true
    await crash(bus)
  }
  const report = (told: Report) => {
    // The dead tell nothing.
    if (dead) return
    if (told.type === 'started') started.push(told.handling)
    else if (told.type === 'handled') handled.push(told.handling)
    else if (told.type === 'confirmed') confirmed.push(told.entry)
    else if (told.type === 'error') errors.push(told.message)
  }
  context.defer(() => released.abort())
  await behave(bus, spec, { report, die: () => void kill(), released: released.signal })
  return {
    started,
    handled,
    confirmed,
    errors,
    get dead() {
      return dead
    },
    kill,
  }
}
