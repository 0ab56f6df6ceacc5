import { UsageError } from '../options.js'
import type { Scenario } from './scenario.js'

/** For each text: the scenario of that name, else all that have it in their name or in a metric's. No text: all. */
export function choose(
  scenarios: readonly Scenario[],
  texts: readonly string[],
): readonly Scenario[] {
  if (texts.length === 0) return scenarios
  const chosen = new Set(texts.flatMap((text) => matching(scenarios, text)))
  if (chosen.size > 0) return scenarios.filter((scenario) => chosen.has(scenario))
  const names = scenarios.map(({ name }) => `\n  ${name}`).join('')
  throw new UsageError(`no scenario has that in its name; there are:${names}`)
}

function matching(scenarios: readonly Scenario[], text: string): readonly Scenario[] {
  const exact = scenarios.filter(({ name }) => name === text)
  if (exact.length > 0) return exact
  return scenarios.filter(({ name, metrics }) =>
    [name, ...metrics.map((metric) => metric.name)].some((own) => own.includes(text)),
  )
}
