import { createServer, type Server, Socket } from 'node:net'
import type { Lab } from './lab.js'

/** An AMQP frame on its way from the server; `classId` and `methodId` are 0 where it is no method. */
export interface Frame {
  readonly channel: number
  readonly classId: number
  readonly methodId: number
  readonly bytes: Buffer
}

/** What is to leave in the same packet behind a frame, or `drop` in its place. */
export type Hook = (frame: Frame) => Buffer | 'drop' | undefined

/** Stands in front of the server and puts frames of its own among the server's: what a broker may do, at its worst time. */
export class FrameProxy {
  hook: Hook = () => undefined
  readonly host = '127.0.0.1'
  readonly #sockets = new Set<Socket>()
  readonly #server: Server

  static async of(lab: Lab): Promise<FrameProxy> {
    const proxy = new FrameProxy(lab.server.address)
    await new Promise<void>((resolve) => proxy.#server.listen(0, proxy.host, resolve))
    lab.defer(() => proxy.close())
    return proxy
  }

  private constructor(behind: { readonly host: string; readonly port: number }) {
    this.#server = createServer((client) => {
      const broker = new Socket().connect(behind.port, behind.host)
      for (const [socket, other] of [
        [client, broker],
        [broker, client],
      ] as const) {
        this.#sockets.add(socket)
        socket.on('error', () => other.destroy())
        socket.on('close', () => {
          this.#sockets.delete(socket)
          other.destroy()
        })
      }
      client.pipe(broker)
      let rest = Buffer.alloc(0)
      broker.on('data', (data) => {
        const [out, left] = this.#pass(Buffer.concat([rest, data]))
        rest = left
        if (out.length > 0) client.write(out)
      })
    })
  }

  #pass(data: Buffer): [Buffer, Buffer<ArrayBuffer>] {
    const out: Buffer[] = []
    let at = 0
    while (data.length - at >= 7) {
      const size = data.readUInt32BE(at + 3) + 8
      if (data.length - at < size) break
      const bytes = data.subarray(at, at + size)
      at += size
      const isMethod = bytes[0] === 1
      const answer = this.hook({
        channel: bytes.readUInt16BE(1),
        classId: isMethod ? bytes.readUInt16BE(7) : 0,
        methodId: isMethod ? bytes.readUInt16BE(9) : 0,
        bytes,
      })
      if (answer === 'drop') continue
      out.push(bytes)
      if (answer !== undefined) out.push(answer)
    }
    return [Buffer.concat(out), Buffer.from(data.subarray(at))]
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port
  }

  /** Cuts all connections. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  async close(): Promise<void> {
    this.cut()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}

function method(channel: number, classId: number, methodId: number, args: Buffer): Buffer {
  const head = Buffer.alloc(11)
  head[0] = 1
  head.writeUInt16BE(channel, 1)
  head.writeUInt32BE(4 + args.length, 3)
  head.writeUInt16BE(classId, 7)
  head.writeUInt16BE(methodId, 9)
  return Buffer.concat([head, args, Buffer.from([0xce])])
}

function shortString(text: string): Buffer {
  return Buffer.concat([Buffer.from([text.length]), Buffer.from(text)])
}

/** `connection.close`, as a server that shuts down sends it. */
export function connectionClose(): Buffer {
  const code = Buffer.from([320 >> 8, 320 & 255])
  return method(0, 10, 50, Buffer.concat([code, shortString('CONNECTION_FORCED'), Buffer.alloc(4)]))
}

/** `basic.cancel` for the consumer that a `basic.consume-ok` is about. */
export function cancelOf({ channel, bytes }: Frame): Buffer {
  const tag = bytes.subarray(12, 12 + bytes[11]!).toString()
  return method(channel, 60, 30, Buffer.concat([shortString(tag), Buffer.from([0])]))
}

export const is = {
  connectionOpenOk: ({ classId, methodId }: Frame) => classId === 10 && methodId === 41,
  channelOpenOk: ({ classId, methodId }: Frame) => classId === 20 && methodId === 11,
  channelCloseOk: ({ classId, methodId }: Frame) => classId === 20 && methodId === 41,
  consumeOk: ({ classId, methodId }: Frame) => classId === 60 && methodId === 21,
}
