import { setTimeout as sleep } from 'node:timers/promises'

/** Asks until nothing is left, as brokers count late; resolves to what is left after 5 s. */
export async function emptied(count: () => Promise<number>, withinMs = 5000): Promise<number> {
  const deadline = performance.now() + withinMs
  for (;;) {
    const left = await count()
    if (left === 0 || performance.now() > deadline) return left
    await sleep(20)
  }
}
