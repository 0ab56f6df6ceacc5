import type { Mutant } from './wrap.js'

/** Which group of a topic came first. */
const firsts = new Map<string, string>()
let members = 0
let lastTopic = ''

export const groups: readonly Mutant[] = [
  {
    name: 'gives a second group only a part',
    claims: { 'groups.each-gets-all': /both groups/ },
    changes: {
      sink: ({ sink, member, spec }) => {
        if (!firsts.has(spec.topic)) firsts.set(spec.topic, spec.group)
        if (firsts.get(spec.topic) === spec.group) return {}
        let count = 0
        return {
          deliver(batch) {
            for (const delivery of batch) {
              if (++count % 3 === 0) member.ack(delivery)
              else sink.deliver([delivery])
            }
          },
        }
      },
    },
  },
  {
    name: 'gives every member of a group everything',
    claims: {
      'groups.share': /duplicates/,
      'groups.durable-offline': /"lost":100/,
      'settle.sigkill': /the heir to get the rest/,
    },
    changes: { spec: (spec) => ({ ...spec, group: `${spec.group}-${++members}` }) },
  },
  {
    name: 'mixes topics up',
    claims: { 'groups.isolation': /messages of other topics/ },
    changes: {
      driver: ({ driver }) => ({
        publish(batch, settle) {
          driver.publish(batch, settle)
          for (const one of batch) {
            const { topic } = one.message
            if (lastTopic !== '' && lastTopic !== topic) {
              driver.publish([{ ...one, message: { ...one.message, topic: lastTopic } }], () => {})
            }
            lastTopic = topic
          }
        },
      }),
    },
  },
  {
    name: 'starts every group at the beginning',
    claims: { 'groups.late-latest': /seen by the late group/ },
    changes: { spec: (spec) => ({ ...spec, from: 'earliest' }) },
  },
  {
    name: 'starts every group at the end',
    claims: {
      'groups.late-earliest': /50 deliveries; 0 came/,
      'groups.late-date': /5 deliveries; 0 came/,
    },
    changes: { spec: (spec) => ({ ...spec, from: 'latest' }) },
  },
  {
    name: 'forgets a group when its member leaves',
    claims: {
      'groups.durable-offline': /"lost":100/,
      'publish.confirmed-is-stored': /"lost":50/,
      'lifecycle.abort-subscription': /deliveries/,
    },
    changes: {
      subscription: ({ member, spec, connection }) => ({
        async close() {
          await member.close()
          await connection.driver.admin?.deleteGroup(spec.topic, spec.group).catch(() => {})
        },
      }),
    },
  },
]
