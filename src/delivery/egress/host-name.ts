const NAME_LENGTH_MAX = 253;
const LABEL = /^[a-z0-9_-]{1,63}$/;

/** Names under which clouds hand out credentials to whoever asks from inside. */
const METADATA_NAMES = [
  "metadata.google.internal",
  "metadata.goog",
  "metadata.azure.internal",
  "metadata.azure.com",
  "instance-data.ec2.internal",
  "metadata.tencentyun.com",
  "metadata.platformequinix.com",
  "metadata.packet.net",
];

/**
 * The one form of a host name: lower case, Punycode, IPv4 in dotted decimal, IPv6 without brackets,
 * no dot at the end. Undefined if no host can have it.
 */
export function normalHostName(text: string): string | undefined {
  // Whatever ends the host in a URL would be cut off, and the rest taken for the name.
  if (/[\s/\\?#@:]/.test(text) && !/^\[[^\]]*\]$/.test(text)) return undefined;
  let hostname: string;
  try {
    hostname = new URL(`http://${text}/`).hostname;
  } catch {
    return undefined;
  }
  return withoutDecoration(hostname);
}

/** As above, of what a parsed URL has as its host. */
export function withoutDecoration(hostname: string): string | undefined {
  if (hostname.startsWith("[")) return hostname.slice(1, -1);
  const name = hostname.endsWith(".") ? hostname.slice(0, -1) : hostname;
  const isName = name.length <= NAME_LENGTH_MAX && name.split(".").every((one) => LABEL.test(one));
  return isName ? name : undefined;
}

/** Why a name must not be called, whatever it resolves to. */
export function nameDenial(name: string): string | undefined {
  if (name === "localhost" || name.endsWith(".localhost")) return "is this machine";
  if (METADATA_NAMES.some((known) => name === known || name.endsWith(`.${known}`))) {
    return "is a metadata service";
  }
  if (!name.includes(".")) return "has no dot, so it names a host of the server's own network";
  return undefined;
}

/** @param allowed as options resolve them: names, or a dot and a name for all below it */
export function isAllowedHost(name: string, allowed: readonly string[]): boolean {
  return allowed.some((one) => (one.startsWith(".") ? name.endsWith(one) : name === one));
}
