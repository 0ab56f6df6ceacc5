import { connect, type MemoryConnection } from '@longshore/core'

/** Connections to the memory broker of this name. */
export async function countMemoryConnections(name: string): Promise<number> {
  const bus = await connect({ driver: 'memory', options: { name } })
  const { broker } = bus.native() as MemoryConnection
  const open = broker.connections.size - 1
  await bus.close()
  return open
}
