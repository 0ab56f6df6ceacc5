/** A URL without user, password and query, for messages and logs. */
export function redact(url: string): string {
  return url.replace(/\/\/.*@/, '//***@').replace(/\?.*$/, '?…')
}
