import type { LongshoreError } from '@longshore/core'
import { expect } from 'vitest'

type ErrorClass = abstract new (...args: never[]) => LongshoreError

/** The error that this ends with, which must be of this very class and say all of that. */
export async function refusal<E extends ErrorClass>(
  doing: Promise<unknown>,
  of: E,
  ...saying: (string | RegExp)[]
): Promise<InstanceType<E>> {
  const error = await doing.then(
    () => expect.fail('it should have failed'),
    (thrown: unknown) => thrown,
  )
  expect(`${error}`).toMatch(new RegExp(`^${of.name}: `))
  expect(error).toBeInstanceOf(of)
  for (const text of saying) expect((error as Error).message).toMatch(text)
  return error as InstanceType<E>
}
