import { isIPv4, isIPv6 } from "node:net";

/** An IP address as a number: whatever notation it came in, there is one form to judge. */
export interface Address {
  readonly family: 4 | 6;
  readonly value: bigint;
}

/** All addresses that share their first `prefixBits` bits with `base`. */
export interface Cidr {
  readonly base: Address;
  readonly prefixBits: number;
}

const MAPPED_PREFIX = 0xffffn;
const LOW_32 = 0xffff_ffffn;

/**
 * Reads an address as resolvers and normalised URLs write it. An IPv4-mapped address is the IPv4
 * address in it, because that is whom the system connects to. A zone (`%eth0`) is no address: it
 * only makes sense for link-local ones, which nobody may reach.
 */
export function parseAddress(text: string): Address | undefined {
  if (isIPv4(text)) return { family: 4, value: ipv4Value(text) };
  if (!isIPv6(text) || text.includes("%")) return undefined;
  const value = ipv6Value(text);
  if (value >> 32n === MAPPED_PREFIX) return { family: 4, value: value & LOW_32 };
  return { family: 6, value };
}

/** The canonical text: dotted decimal, or compressed hexadecimal. */
export function formatAddress({ family, value }: Address): string {
  if (family === 4) return octets(value).join(".");
  const digits = value.toString(16).padStart(32, "0");
  const groups = Array.from(digits.matchAll(/.{4}/g), ([group]) => group);
  return new URL(`http://[${groups.join(":")}]/`).hostname.slice(1, -1);
}

/** Reads `10.0.0.0/8`, or a single address. Undefined if it is neither, or has bits after it. */
export function parseCidr(text: string): Cidr | undefined {
  const [, addressText = "", bitsText] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const base = parseAddress(addressText);
  if (base === undefined) return undefined;
  // The prefix of a mapped address counts bits that the address no longer has.
  if (base.family === 4 && addressText.includes(":")) return undefined;
  const width = widthOf(base);
  const prefixBits = bitsText === undefined ? width : Number(bitsText);
  if (prefixBits > width) return undefined;
  const rest = BigInt(width - prefixBits);
  return (base.value >> rest) << rest === base.value ? { base, prefixBits } : undefined;
}

export function contains({ base, prefixBits }: Cidr, address: Address): boolean {
  if (base.family !== address.family) return false;
  const rest = BigInt(widthOf(base) - prefixBits);
  return base.value >> rest === address.value >> rest;
}

/** The IPv4 address whose last bit is `shift` bits from the right of an IPv6 address. */
export function embeddedIpv4({ value }: Address, shift: number): Address {
  return { family: 4, value: (value >> BigInt(shift)) & LOW_32 };
}

/** The IPv4 address with every bit turned, as Teredo hides that of its client. */
export function inverted({ value }: Address): Address {
  return { family: 4, value: value ^ LOW_32 };
}

function widthOf({ family }: Address): number {
  return family === 4 ? 32 : 128;
}

function ipv4Value(text: string): bigint {
  return text.split(".").reduce((value, octet) => (value << 8n) | BigInt(octet), 0n);
}

function octets(value: bigint): bigint[] {
  return [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 0xffn);
}

/** `text` is known to be valid: at most one `::`, and dots only in the last group. */
function ipv6Value(text: string): bigint {
  const [head = "", tail = ""] = text.split("::");
  const front = groupsOf(head);
  const back = groupsOf(tail);
  const zeros = Array.from({ length: 8 - front.length - back.length }, () => 0n);
  return [...front, ...zeros, ...back].reduce((value, group) => (value << 16n) | group, 0n);
}

function groupsOf(part: string): bigint[] {
  if (part === "") return [];
  return part.split(":").flatMap((group) => {
    if (!group.includes(".")) return [BigInt(`0x${group}`)];
    const value = ipv4Value(group);
    return [value >> 16n, value & 0xffffn];
  });
}
