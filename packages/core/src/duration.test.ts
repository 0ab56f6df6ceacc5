import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { toMs } from './duration.js'

describe('toMs', () => {
  it('reads milliseconds and every unit', () => {
    expect(
      [0, 1.5, '250ms', '30s', '5m', '2h', '7d', '1.5h', ' 1s '].map((value) =>
        toMs(value as never),
      ),
    ).toEqual([0, 1.5, 250, 30_000, 300_000, 7_200_000, 604_800_000, 5_400_000, 1000])
  })

  it('refuses everything else, with what it is of and the cure', () => {
    for (const value of [
      -1,
      Number.NaN,
      Number.POSITIVE_INFINITY,
      '',
      '5',
      's',
      '-5s',
      '5 s',
      '5w',
      '1e3s',
      '1.s',
      null,
      undefined,
      {},
      true,
      10n,
    ]) {
      expect(() => toMs(value as never, 'the delay')).toThrow(
        expect.objectContaining({
          code: 'LONGSHORE_OPTION',
          message: expect.stringMatching(/^the delay is .*'250ms', '30s', '5m', '2h', '7d'$/),
        }),
      )
    }
  })

  it('is linear in its number', () => {
    const units = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }
    const unit = fc.constantFrom(...(Object.keys(units) as (keyof typeof units)[]))
    fc.assert(
      fc.property(fc.nat(100_000), unit, (n, name) => {
        expect(toMs(`${n}${name}`)).toBe(n * units[name])
      }),
    )
  })
})
