import { ConfigError } from "../base/errors.ts";

const HOST = /^(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)$/;
const ADDRESSES_MAX = 64;

/** Servers as `host:port`, in the order in which they are tried. */
export function resolveAddresses(given: unknown, defaultPort: number): readonly string[] {
  const list: readonly unknown[] = Array.isArray(given) ? given : [given];
  if (list.length === 0 || list.length > ADDRESSES_MAX) {
    throw new ConfigError(`url must name 1 to ${ADDRESSES_MAX} servers`);
  }
  return [...new Set(list.map((one) => resolveAddress(one, defaultPort)))];
}

function resolveAddress(given: unknown, defaultPort: number): string {
  const text = typeof given === "string" ? given : "";
  const [, host = "", port = String(defaultPort)] = /^(.*?)(?::(\d{1,5}))?$/.exec(text) ?? [];
  const isPort = Number(port) >= 1 && Number(port) <= 65_535;
  if (isPort && HOST.test(host)) return `${host}:${Number(port)}`;
  throw new ConfigError(
    `url must be a server such as "tasks.example.com:${defaultPort}" or "[::1]:${defaultPort}", ` +
      `or a list of them, not ${JSON.stringify(given) ?? "nothing"}`,
  );
}
