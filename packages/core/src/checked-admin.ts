import type { Admin } from './admin.js'
import type { Driver } from './driver.js'
import { resolveGroup } from './group-options.js'
import { checkName } from './names.js'
import { checkOptions } from './options.js'

/** A driver's admin that refuses names which not every broker can hold, and options which this one can't honour. */
export function checkedAdmin(driver: Driver, admin: Admin, assertOpen: () => void): Admin {
  const check = (topic: string, group?: string) => {
    assertOpen()
    checkName('topic', topic)
    if (group !== undefined) checkName('group', group)
  }
  return {
    async createTopic(topic) {
      check(topic)
      await admin.createTopic(topic)
    },
    async createGroup(topic, group, options = { order: 'none', from: 'latest' }) {
      check(topic, group)
      const where = `createGroup('${topic}')`
      checkOptions(where, options, ['order', 'from', 'routes'])
      await admin.createGroup(topic, group, resolveGroup(where, options, driver))
    },
    async deleteTopic(topic) {
      check(topic)
      await admin.deleteTopic(topic)
    },
    async deleteGroup(topic, group) {
      check(topic, group)
      await admin.deleteGroup(topic, group)
    },
    async stats(topic, group) {
      check(topic, group)
      return admin.stats(topic, group)
    },
  }
}
