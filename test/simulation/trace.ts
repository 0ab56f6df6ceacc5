import { hash } from './random.js'

/** A rule that a run broke. */
export interface Violation {
  readonly rule: string
  readonly detail: string
  readonly at: number
}

/** What happened, line by line, with the virtual time since the beginning; and the first rule that was broken. */
export class Trace {
  readonly lines: string[] = []
  hash = 0x811c9dc5
  violation: Violation | undefined

  constructor(
    readonly active: boolean,
    private readonly since: () => number,
    private readonly onLine?: (line: string) => void,
  ) {}

  /** The text is only built if somebody wants it. */
  add(text: string | (() => string)): void {
    if (!this.active) return
    const what = typeof text === 'string' ? text : text()
    const line = `+${this.since().toFixed(3).padStart(10)} ${what}`
    this.hash = hash(line, this.hash)
    this.lines.push(line)
    this.onLine?.(line)
  }

  fail(rule: string, detail: string): void {
    if (this.violation !== undefined) return
    this.violation = { rule, detail, at: this.since() }
    this.add(`VIOLATION ${rule}: ${detail}`)
  }
}
