import { createServer, type Server, Socket } from 'node:net'
import type { Lab } from './lab.js'

/** What stands in front of the server and counts who comes. */
export class Front {
  accepted = 0
  readonly host = '127.0.0.1'
  readonly #open = new Set<Socket>()
  readonly #server: Server

  static async of(lab: Lab): Promise<Front> {
    const front = new Front(lab.server.address)
    await new Promise<void>((resolve) => front.#server.listen(0, front.host, resolve))
    lab.defer(() => front.close())
    return front
  }

  private constructor(behind: { readonly host: string; readonly port: number }) {
    this.#server = createServer((client) => {
      this.accepted++
      const broker = new Socket().connect(behind.port, behind.host)
      this.#open.add(client)
      client.pipe(broker).pipe(client)
      client.on('error', () => broker.destroy())
      broker.on('error', () => client.destroy())
      client.on('close', () => {
        this.#open.delete(client)
        broker.destroy()
      })
    })
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port
  }

  /** Connections open now. */
  get open(): number {
    return this.#open.size
  }

  async close(): Promise<void> {
    for (const client of this.#open) client.destroy()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}
