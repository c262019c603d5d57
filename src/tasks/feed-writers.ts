/** A prepared transaction may come back under another name after a restart. */
export function isOneLeft(before: ReadonlySet<string>, now: ReadonlySet<string>): boolean {
  for (const writer of now) if (writer.startsWith("-1/") || before.has(writer)) return true;
  return false;
}
