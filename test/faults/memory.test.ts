import { memoryTarget } from '@longshore/conformance'
import { faults } from './matrix.js'
import { countMemoryConnections } from './memory.js'

faults({ ...memoryTarget('faults'), countConnections: () => countMemoryConnections('faults') })
