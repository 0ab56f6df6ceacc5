// A small driver with a broker on TCP: it shows that the matrix itself is right, network and processes included.
import { memoryTarget } from '@longshore/conformance'
import { startRelay } from '../conformance/relay/server.mjs'
import { connectTo } from '../conformance/relay/target.mjs'
import { faults } from './matrix.js'
import { countMemoryConnections } from './memory.js'

const name = 'faults-relay'
const relay = await startRelay(name)
process.env.RELAY_PORT = String(relay.port)

faults({
  driver: 'relay',
  connect: (options) => connectTo(relay.host, relay.port, options),
  close: relay.stop,
  tolerances: { heartbeatMs: 6000 },
  hooks: {
    restart: () => relay.stop().then(relay.start),
    severConnections: relay.sever,
    deleteTopology: memoryTarget(name).hooks!.deleteTopology!,
    program: new URL('../conformance/relay/target.mjs', import.meta.url),
    proxy: { host: relay.host, port: relay.port, connect: connectTo },
  },
  countConnections: () => countMemoryConnections(name),
})
