interface Brokers {
  up(names: readonly string[], options: { log(line: string): void }): Promise<{ url: string }[]>
}

/** Brings up a broker of the repo's launcher, which is no part of this package, and gives its URL. */
export async function broker(name: string, log: (line: string) => void): Promise<string> {
  const launcher = new URL('../../../scripts/brokers/index.mjs', import.meta.url).href
  const { up }: Brokers = await import(launcher)
  const [info] = await up([name], { log })
  if (info === undefined) throw new Error(`the launcher gave no URL for ${name}`)
  return info.url
}
