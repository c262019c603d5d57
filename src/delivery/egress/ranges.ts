import { type Address, type Cidr, contains, embeddedIpv4, inverted, parseCidr } from "./address.ts";

/** What the operator trusts beyond the public internet. */
export interface Trust {
  readonly cidrs: readonly Cidr[];
  /** The address belongs to a host that is on the list of allowed names. */
  readonly isHostAllowed: boolean;
}

/**
 * What lets an address of a range through after all: the name of its host or a block of the
 * operator's list (`host`), such a block alone (`cidr`), or nothing (`never`).
 */
type Key = "host" | "cidr" | "never";

export interface Range {
  /** Completes "an address that is …". */
  readonly name: string;
  readonly block: Cidr;
  readonly openedBy: Key;
  /** IPv4 addresses that an address of this range stands for. */
  readonly embedded?: (address: Address) => readonly Address[];
}

function range(
  text: string,
  name: string,
  openedBy: Key,
  embedded?: (address: Address) => readonly Address[],
): Range {
  const block = parseCidr(text);
  if (block === undefined) throw new Error(`${text} is not a block of addresses`);
  return { name, block, openedBy, ...(embedded === undefined ? {} : { embedded }) };
}

const lastIpv4 = (address: Address): readonly Address[] => [embeddedIpv4(address, 0)];
const sixToFour = (address: Address): readonly Address[] => [embeddedIpv4(address, 80)];
const teredo = (address: Address): readonly Address[] => [
  embeddedIpv4(address, 64), // its server
  inverted(embeddedIpv4(address, 0)), // its client
];

/**
 * The special-purpose registries of IANA, and the addresses at which clouds hand out credentials.
 * The first that contains an address names it, so narrow blocks stand before wide ones.
 */
const RANGES: readonly Range[] = [
  range("169.254.169.254/32", "a metadata service", "never"),
  range("169.254.170.2/32", "a metadata service", "never"), // of containers on AWS
  range("169.254.170.23/32", "a metadata service", "never"), // of pods on AWS
  range("100.100.100.200/32", "a metadata service", "never"), // Alibaba, inside 100.64/10
  range("168.63.129.16/32", "a metadata service", "never"), // Azure, a public address
  range("192.0.0.192/32", "a metadata service", "never"), // Oracle
  range("fd00:ec2::/32", "a metadata service", "never"), // AWS
  range("fd20:ce::254/128", "a metadata service", "never"), // Google

  range("0.0.0.0/8", "unspecified", "never"),
  range("10.0.0.0/8", "private", "host"),
  range("100.64.0.0/10", "shared by a carrier", "host"),
  range("127.0.0.0/8", "loopback", "host"),
  range("169.254.0.0/16", "link-local", "cidr"),
  range("172.16.0.0/12", "private", "host"),
  range("192.0.0.0/24", "reserved", "cidr"),
  range("192.0.2.0/24", "for documentation", "cidr"),
  range("192.31.196.0/24", "reserved", "cidr"),
  range("192.52.193.0/24", "reserved", "cidr"),
  range("192.88.99.0/24", "a 6to4 relay", "cidr"),
  range("192.168.0.0/16", "private", "host"),
  range("192.175.48.0/24", "reserved", "cidr"),
  range("198.18.0.0/15", "for benchmarks", "cidr"),
  range("198.51.100.0/24", "for documentation", "cidr"),
  range("203.0.113.0/24", "for documentation", "cidr"),
  range("224.0.0.0/4", "multicast", "never"),
  range("255.255.255.255/32", "broadcast", "never"),
  range("240.0.0.0/4", "reserved", "cidr"),

  range("::/128", "unspecified", "never"),
  range("::1/128", "loopback", "host"),
  range("::/96", "IPv4-compatible", "cidr", lastIpv4),
  range("64:ff9b::/96", "NAT64", "cidr", lastIpv4),
  // Where a local translator puts the IPv4 address is its own affair; the end is the usual place.
  range("64:ff9b:1::/48", "NAT64", "cidr", lastIpv4),
  range("2001::/32", "Teredo", "cidr", teredo),
  range("2001::/23", "reserved", "cidr"),
  range("2001:db8::/32", "for documentation", "cidr"),
  range("2002::/16", "6to4", "cidr", sixToFour),
  range("3fff::/20", "for documentation", "cidr"),
  range("fc00::/7", "private", "host"),
  range("fe80::/10", "link-local", "cidr"),
  range("fec0::/10", "private", "host"),
  range("ff00::/8", "multicast", "never"),
];

const GLOBAL_UNICAST = range("2000::/3", "global", "cidr").block;
/** IPv6 is judged the other way round: what IANA has not given out is nobody's to call. */
const NOT_GLOBAL = range("::/0", "reserved", "cidr");

/**
 * The range because of which an address must not be called, or undefined if it may be.
 *
 * An address that stands for another one leads there, so both are judged: opening NAT64 for a
 * network that has only IPv6 does not open the private network behind the translator.
 */
export function denialOf(address: Address, trust: Trust): Range | undefined {
  const found = rangeOf(address);
  if (found === undefined) return undefined;
  if (!isOpened(found, address, trust)) return found;
  for (const inner of found.embedded?.(address) ?? []) {
    const denial = denialOf(inner, trust);
    if (denial !== undefined) return denial;
  }
  return undefined;
}

function rangeOf(address: Address): Range | undefined {
  const found = RANGES.find(({ block }) => contains(block, address));
  if (found !== undefined || address.family === 4) return found;
  return contains(GLOBAL_UNICAST, address) ? undefined : NOT_GLOBAL;
}

function isOpened({ openedBy }: Range, address: Address, trust: Trust): boolean {
  if (openedBy === "never") return false;
  if (openedBy === "host" && trust.isHostAllowed) return true;
  return trust.cidrs.some((block) => contains(block, address));
}
