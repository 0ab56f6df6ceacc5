import { type Entry, Ledger, type Member, sharedTime } from '@longshore/conformance'

interface Note {
  readonly entry: Entry
  readonly at: number
}

/** What members in this process and in others handled, in the order in which it happened. */
export class Diary {
  readonly #notes: Note[] = []
  readonly #followed = new Map<Member, number>()

  /** @param ledger is told at once, in whatever order the news come */
  constructor(private readonly ledger: Ledger) {}

  /** Handled in this process. */
  see(entry: Entry): void {
    this.#note(entry, sharedTime())
  }

  follow(member: Member): void {
    this.#followed.set(member, 0)
  }

  /** Notes what the followed ones have told since. */
  read(): void {
    for (const [member, known] of this.#followed) {
      for (const handling of member.handled.slice(known)) this.#note(handling, handling.at)
      this.#followed.set(member, member.handled.length)
    }
  }

  #note(entry: Entry, at: number): void {
    this.#notes.push({ entry, at })
    this.ledger.see(entry)
  }

  /** A ledger that saw all in order. */
  inOrder(): Ledger {
    const ordered = new Ledger()
    for (const { entry } of this.#notes.toSorted((a, b) => a.at - b.at)) {
      ordered.publish(entry)
      ordered.see(entry)
    }
    return ordered
  }
}
