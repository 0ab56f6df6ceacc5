import type { Channel, Message } from 'amqplib'

/** What became of a delivery; `told`: the broker knows. */
type State = 'open' | 'acked' | 'told'

/**
 * Acknowledgements of one channel, sent once per turn of the event loop. What is acked without a gap leaves as one frame
 * (`multiple`); what lies behind a delivery that is still in a handler is acked by itself, so that it holds up nobody.
 */
export class Acks {
  /** By delivery tag from `#low` on: a channel counts deliveries from 1. */
  #states: State[] = []
  #low = 1
  #behind: number[] = []
  #scheduled = false
  /** Something was acked. */
  used = false

  constructor(private readonly channel: Channel) {}

  /** The next delivery came. */
  opened(): void {
    this.#states.push('open')
  }

  ack(tag: number): void {
    this.#states[tag - this.#low] = 'acked'
    this.#behind.push(tag)
    this.used = true
    if (this.#scheduled) return
    this.#scheduled = true
    setImmediate(this.#flushSoon)
  }

  /** Back to the queue, at once. */
  requeue(tag: number): void {
    this.#states[tag - this.#low] = 'told'
    this.channel.nack(tagged(tag), false, true)
  }

  readonly #flushSoon = (): void => {
    try {
      this.flush()
    } catch {
      // The channel is gone, and with it the deliveries: they come again.
    }
  }

  /** Throws if the channel is closed. */
  flush(): void {
    this.#scheduled = false
    if (this.#behind.length === 0) return
    const states = this.#states
    let last = 0
    let count = 0
    let end = 0
    for (; end < states.length && states[end] !== 'open'; end++) {
      if (states[end] !== 'acked') continue
      last = this.#low + end
      count++
    }
    if (count > 0) this.channel.ack(tagged(last), count > 1)
    this.#low += end
    states.splice(0, end)
    const behind = this.#behind
    this.#behind = []
    for (const tag of behind) {
      if (tag < this.#low || states[tag - this.#low] !== 'acked') continue
      states[tag - this.#low] = 'told'
      this.channel.ack(tagged(tag))
    }
  }
}

/** All that the client reads of a message to settle it. */
function tagged(deliveryTag: number): Message {
  return { fields: { deliveryTag } } as Message
}
