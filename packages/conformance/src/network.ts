import { silentLogger } from '@longshore/core'
import type { CheckContext, Network } from './context.js'
import { TcpProxy } from './proxy.js'
import type { ProxyHook, Repair } from './target.js'

/** The target's network: its TCP proxy where it has one, else its fault hooks. */
export async function openNetwork(context: CheckContext): Promise<Network> {
  const { proxy } = context.hooks
  return proxy === undefined ? hooked(context) : proxied(context, proxy)
}

async function proxied(context: CheckContext, hook: ProxyHook): Promise<Network> {
  const proxy = await TcpProxy.start({ host: hook.host, port: hook.port })
  context.defer(() => proxy.close())
  return {
    async connect(options = {}) {
      const bus = await hook.connect(proxy.host, proxy.port, { logger: silentLogger, ...options })
      return context.adopt(bus)
    },
    sever: async () => proxy.cut(),
    loseConfirms: async () => proxy.swallow('downstream'),
    losePublishes: async () => proxy.swallow('upstream'),
    async heal() {
      // What was swallowed is missing from the stream, so those connections can't be healed.
      proxy.restore()
      proxy.cut()
    },
  }
}

function hooked(context: CheckContext): Network {
  const repairs: Repair[] = []
  const heal = async () => {
    for (const repair of repairs.splice(0)) await repair()
  }
  const keep = async (repair: Promise<Repair> | undefined) => {
    if (repair) repairs.push(await repair)
  }
  context.defer(heal)
  const { hooks } = context
  return {
    connect: (options) => context.connect(options),
    sever: async () => hooks.severConnections?.(),
    loseConfirms: (topic) => keep(hooks.loseConfirms?.(topic)),
    losePublishes: (topic) => keep(hooks.losePublishes?.(topic)),
    heal,
  }
}
