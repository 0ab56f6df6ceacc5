/** A URL without its user and password, for messages and logs. */
export function redact(url: string): string {
  return url.replace(/\/\/[^/@]*@/, '//***@')
}
