/** Which messages fail, and how often: decided by their number alone, so that every run fails alike. */

/** A hash of a number, evenly spread. */
function roll(salt: number, seq: number): number {
  let h = Math.imul(seq ^ salt, 0x9e3779b1)
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

/** The failing attempts of a flight in the group `delays`: 0, 1 or 2, fewer than it has. */
export function delayFailures(seq: number): number {
  const r = roll(1, seq)
  return r % 250 === 0 ? 1 + ((r >>> 16) & 1) : 0
}

/** In the group `routes`: one attempt that fails, or all of them until the cause is repaired. */
export function routeFailure(seq: number): 'none' | 'once' | 'until-repaired' {
  const r = roll(2, seq)
  if (r % 400 === 1) return 'until-repaired'
  return r % 200 === 0 ? 'once' : 'none'
}
