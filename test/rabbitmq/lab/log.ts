import type { Logger } from '@longshore/core'

/** A logger that keeps what it is told. */
export class Log implements Logger {
  readonly lines: string[] = []
  readonly debug = () => {}
  readonly info = (message: string) => void this.lines.push(message)
  readonly warn = (message: string) => void this.lines.push(message)
  readonly error = (message: string) => void this.lines.push(message)
}
