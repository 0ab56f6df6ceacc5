import { numberOf } from './ledger.js'
import { patientMs } from './plan.js'
import type { Simulation } from './simulation.js'

/** Dead letters that redriving can't help. */
const hopeless: ReadonlySet<string> = new Set(['permanent', 'undecodable'])

/** Virtual time within which everything must come to rest. */
const boundMs = 600_000

/** The faults stop; what is left must be handled, and the books must balance. */
export async function finish(sim: Simulation): Promise<void> {
  const { chaos, broker, ledger, clock, plan } = sim
  sim.trace.add('--- the faults stop')
  chaos.active = false
  broker.faults = {}
  sim.ending = true
  if (!broker.running) broker.start()
  for (let round = 0; ; round++) {
    if (round === 300)
      return ledger.fail('stuck', `redriving does not come to an end\n${dump(sim)}`)
    for (const group of plan.groups) if (sim.living(group).length === 0) sim.join(group)
    const rested = await clock.until(
      () => sim.trace.violation !== undefined || resting(sim),
      boundMs,
    )
    if (sim.trace.violation !== undefined) return
    if (!rested) return ledger.fail('stuck', dump(sim))
    if (plan.groups.some((group) => sim.living(group).length === 0)) continue
    if (!(await again(sim))) break
  }
  sim.trace.add('--- at rest')
  const dead = deadLetters(sim)
  await closeAll(sim)
  if (sim.trace.violation !== undefined) return
  if (deadLetters(sim) !== dead) ledger.fail('closing', 'closing changed the dead letters')
  balance(sim)
}

/** Nothing waits, nothing is held, nobody publishes, comes or goes. */
function resting(sim: Simulation): boolean {
  if (sim.open > 0) return false
  for (const topic of sim.broker.topics.values()) {
    if (topic.backlog > 0) return false
    for (const group of topic.groups.values()) if (group.stats().inFlight > 0) return false
  }
  return true
}

/** Closes the circuits and redrives; false if there was nothing to do. */
async function again(sim: Simulation): Promise<boolean> {
  const { admin, plan, ledger } = sim
  let done = 0
  for (const { topic, name, id } of plan.groups) {
    for (const key of [...(ledger.groups.get(id)?.circuits.keys() ?? [])]) {
      if (await admin.circuits(topic, name).close(key)) done++
    }
    done += await admin
      .deadLetters(topic, name)
      .redrive({ where: ({ failure }) => !hopeless.has(failure.reason) })
  }
  return done > 0
}

async function closeAll(sim: Simulation): Promise<void> {
  const { clock, ledger, members } = sim
  for (const member of members) {
    if (!member.connection.dead && !member.connection.closing) sim.close(member, patientMs)
  }
  const others = [sim.admin, ...sim.publishers]
  const dead = sim.all.filter((connection) => connection.dead)
  for (const bus of others) sim.track(bus.close())
  // What is left of crashed processes in this one.
  for (const { bus } of dead) if (bus) sim.track(bus.close({ timeout: 0 }))
  await clock.until(() => sim.open === 0, boundMs)
  if (sim.open > 0) return ledger.fail('close', `${sim.open} closings don't end`)
  // Nobody can stop a handler that has timed out or whose process crashed: they end by themselves.
  await clock.advance(11_000)
}

/** A picture of the dead letters, to compare. */
function deadLetters(sim: Simulation): string {
  const parts: string[] = []
  for (const topic of sim.broker.topics.values()) {
    for (const group of topic.groups.values()) {
      const letters = group.deadLetters.map((l) => `${numberOf(l.message)} ${l.failure.reason}`)
      if (letters.length > 0) parts.push(`${topic.name}/${group.name}: ${letters.join(', ')}`)
    }
  }
  return parts.join('\n')
}

/** Holds the ledger against what is there. */
function balance(sim: Simulation): void {
  const { ledger, clock, plan, broker } = sim
  for (const sent of ledger.sent) {
    if (sent === undefined) continue
    const { n } = sent.plan
    if (sent.status === 'open') ledger.fail('publish', `#${n} was never told what became of it`)
    if (sent.status === 'confirmed' && sent.copies === 0 && !sent.cancelled) {
      ledger.fail('lost', `#${n} is confirmed, but the broker doesn't have it`)
    }
    if (sent.status === 'failed' && sent.copies > 0) {
      ledger.fail('failed-but-stored', `#${n} is reported as surely not stored, but is`)
    }
    if (plan.weather === 'calm' && (sent.copies > 1 || sent.status === 'unknown')) {
      ledger.fail('publish', `#${n}: ${sent.status}, stored ${sent.copies} times, without faults`)
    }
  }
  for (const [id, group] of ledger.groups) {
    const letters = new Map<number, number>()
    for (const { message } of broker.topics.get(group.plan.topic)!.group(group.plan.name)!
      .deadLetters) {
      const n = numberOf(message)
      letters.set(n, (letters.get(n) ?? 0) + 1)
      if (message.id !== ledger.sent[n]?.message?.id) ledger.fail('id', `dead letter #${n}`)
    }
    group.fates.forEach((fate, n) => {
      const what = `#${n} in ${id}`
      if (fate.waiting.length > 0 || fate.held > 0) {
        ledger.fail('lost', `${what}: ${fate.waiting.length} copies wait, ${fate.held} are held`)
      }
      if (fate.dead !== (letters.get(n) ?? 0)) {
        ledger.fail('lost', `${what}: ${fate.dead} dead letters should be there`)
      }
      if (fate.acks + fate.dead === 0) ledger.fail('lost', what)
      if (fate.successes > fate.acks + fate.taken) {
        ledger.fail('repeated', `${what}: handled ${fate.successes} times, acked ${fate.acks}`)
      }
      if (plan.weather === 'calm' && fate.acks + fate.dead !== 1) {
        ledger.fail('repeated', `${what}: acked ${fate.acks} times, without faults`)
      }
    })
  }
  for (const { role, bus, dead, members } of sim.all) {
    if (bus === undefined) continue
    const { outgoing, subscriptions } = bus.health()
    if (outgoing.messages > 0) ledger.fail('leftover', `${role}: ${outgoing.messages} outgoing`)
    if (subscriptions.length > 0) ledger.fail('leftover', `${role}: a subscription`)
    const running = dead ? 0 : members.reduce((sum, member) => sum + member.running, 0)
    if (running > 0) ledger.fail('leftover', `${role}: ${running} run`)
  }
  if (clock.next !== undefined) ledger.fail('leftover', `a timer, due in ${clock.next} ms`)
}

/** Where everything is, for a run that doesn't come to rest. */
function dump(sim: Simulation): string {
  const lines = [`at +${sim.clock.now()}: ${sim.open} steps are open`]
  for (const topic of sim.broker.topics.values()) {
    for (const group of topic.groups.values()) {
      lines.push(`${topic.name}/${group.name}: ${JSON.stringify(group.stats())}`)
    }
  }
  for (const member of sim.members) {
    const { connection, group, bus } = member
    if (connection.dead || connection.closing) continue
    const held = connection.members.reduce((sum, { held }) => sum + held, 0)
    const { subscriptions } = bus.health()
    lines.push(`${connection.name} of ${group.id} holds ${held}: ${JSON.stringify(subscriptions)}`)
  }
  for (const [id, group] of sim.ledger.groups) {
    group.fates.forEach((fate, n) => {
      if (fate.waiting.length + fate.held > 0) lines.push(`#${n} in ${id}: ${JSON.stringify(fate)}`)
    })
  }
  return lines.slice(0, 40).join('\n')
}
