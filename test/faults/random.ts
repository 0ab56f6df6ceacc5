/** Of this run; LONGSHORE_FAULTS_SEED repeats one. */
export const seed =
  Number(process.env.LONGSHORE_FAULTS_SEED) || Math.floor(Math.random() * 2 ** 31) + 1

/** Numbers from 0 to 1 that follow from the seed (mulberry32). */
export function random(from: number): () => number {
  let state = from
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}
