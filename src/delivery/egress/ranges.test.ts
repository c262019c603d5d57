import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Address, formatAddress, parseAddress, parseCidr } from "./address.ts";
import { EgressRefusedError } from "./errors.ts";
import { resolveEgressOptions } from "./options.ts";
import { denialOf } from "./ranges.ts";
import { readTarget } from "./target.ts";

const RULES = resolveEgressOptions({ allowHttp: true });
const NOBODY = { cidrs: [], isHostAllowed: false };

function address(text: string): Address {
  const found = parseAddress(text);
  if (found === undefined) throw new Error(`${text} is no address`);
  return found;
}

/** A block written again, so that a slip in the table is not repeated here. */
const octet = fc.integer({ min: 0, max: 255 });
const within = (min: number, max: number): fc.Arbitrary<number> => fc.integer({ min, max });
const fixed = (value: number): fc.Arbitrary<number> => fc.constant(value);
const deniedIpv4 = fc.oneof(
  fc.tuple(fixed(0), octet, octet, octet),
  fc.tuple(fixed(10), octet, octet, octet),
  fc.tuple(fixed(100), within(64, 127), octet, octet),
  fc.tuple(fixed(127), octet, octet, octet),
  fc.tuple(fixed(169), fixed(254), octet, octet),
  fc.tuple(fixed(172), within(16, 31), octet, octet),
  fc.tuple(fixed(192), fixed(0), fc.constantFrom(0, 2), octet),
  fc.tuple(fixed(192), fixed(168), octet, octet),
  fc.tuple(fixed(198), within(18, 19), octet, octet),
  fc.tuple(fixed(198), fixed(51), fixed(100), octet),
  fc.tuple(fixed(203), fixed(0), fixed(113), octet),
  fc.tuple(within(224, 255), octet, octet, octet),
);

function reasonOf(url: string): string | undefined {
  try {
    readTarget(url, RULES);
    return undefined;
  } catch (error) {
    if (error instanceof EgressRefusedError) return error.reason;
    throw error;
  }
}

type Octets = readonly [number, number, number, number];
const whole = ([a, b, c, d]: Octets): number => ((a * 256 + b) * 256 + c) * 256 + d;
const hex = (value: number): string => value.toString(16);

const DIGITS = { "full-width": 0xff10, bold: 0x1d7ce, mono: 0x1d7f6 };
const respell = (text: string, zero: number): string =>
  text.replace(/\d/g, (digit) => String.fromCodePoint(zero + Number(digit)));

/** Ways to write an IPv4 address as a host. */
const SPELLINGS: Readonly<Record<string, (octets: Octets) => string>> = {
  dotted: (o) => o.join("."),
  "dotted, with an end": (o) => `${o.join(".")}.`,
  decimal: (o) => String(whole(o)),
  hexadecimal: (o) => `0x${hex(whole(o))}`,
  octal: (o) => `0${whole(o).toString(8)}`,
  "hexadecimal parts": (o) => o.map((one) => `0x${hex(one)}`).join("."),
  "octal parts": (o) => o.map((one) => `0${one.toString(8)}`).join("."),
  "padded octal parts": (o) => o.map((one) => `000${one.toString(8)}`).join("."),
  "two parts": ([a, b, c, d]) => `${a}.${(b * 256 + c) * 256 + d}`,
  "three parts": ([a, b, c, d]) => `${a}.${b}.${c * 256 + d}`,
  "mixed parts": ([a, b, c, d]) => `0x${hex(a)}.0${b.toString(8)}.${c * 256 + d}`,
  escaped: (o) => o.join(".").replace(/\d/g, (digit) => `%3${digit}`),
  "ideographic dots": (o) => o.join("。"),
  "full-width dots": (o) => o.join("．"),
  "half-width dots": (o) => o.join("｡"),
  "full-width digits": (o) => respell(o.join("."), DIGITS["full-width"]),
  "bold digits": (o) => respell(o.join("."), DIGITS.bold),
  "monospace digits": (o) => respell(o.join("."), DIGITS.mono),
  mapped: (o) => `[::ffff:${o.join(".")}]`,
  "mapped in hexadecimal": ([a, b, c, d]) => `[::ffff:${hex(a * 256 + b)}:${hex(c * 256 + d)}]`,
  "mapped at length": (o) => `[0:0:0:0:0:FFFF:${o.join(".")}]`,
};

/** IPv6 addresses that lead to an IPv4 address through a translator or a tunnel. */
const DETOURS: typeof SPELLINGS = {
  compatible: (o) => `[::${o.join(".")}]`,
  translated: (o) => `[::ffff:0:${o.join(".")}]`,
  NAT64: (o) => `[64:ff9b::${o.join(".")}]`,
  "local NAT64": (o) => `[64:ff9b:1::${o.join(".")}]`,
  "6to4": ([a, b, c, d]) => `[2002:${hex(a * 256 + b)}:${hex(c * 256 + d)}::1]`,
  Teredo: ([a, b, c, d]) =>
    `[2001:0:5db8:d822::${hex(0xffff - (a * 256 + b))}:${hex(0xffff - (c * 256 + d))}]`,
};

const NOTATIONS = { ...SPELLINGS, ...DETOURS };

describe("an address", () => {
  it("that is not public is refused in every notation", () => {
    fc.assert(
      fc.property(deniedIpv4, fc.constantFrom(...Object.keys(NOTATIONS)), (octets, name) => {
        const host = NOTATIONS[name]?.(octets) ?? "";
        expect(reasonOf(`http://${host}/`), `${name}: ${host}`).toBe("address");
      }),
      { numRuns: 1_500 },
    );
  });

  it("is judged alike in every spelling", () => {
    fc.assert(
      fc.property(fc.tuple(octet, octet, octet, octet), (octets) => {
        const dotted = denialOf(address(octets.join(".")), NOBODY);
        for (const [name, write] of Object.entries(SPELLINGS)) {
          const hostname = new URL(`http://${write(octets)}/`).hostname.replace(/^\[|\]$/g, "");
          expect(denialOf(address(hostname), NOBODY), name).toBe(dotted);
        }
      }),
      { numRuns: 100 },
    );
  });

  it("of IPv6 is public only inside 2000::/3", () => {
    const groups = fc.tuple(
      ...Array.from({ length: 8 }, () => fc.integer({ max: 0xffff, min: 0 })),
    );
    fc.assert(
      fc.property(groups, (parts) => {
        const [first = 0] = parts;
        const text = parts.map(hex).join(":");
        if (first >= 0x2000 && first <= 0x3fff) return;
        expect(denialOf(address(text), NOBODY)?.name, text).toBeDefined();
      }),
    );
  });

  it("reads as it was written, in its shortest form", () => {
    fc.assert(
      fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), (text) => {
        const read = address(text);
        expect(address(formatAddress(read))).toEqual(read);
        const hostname = text.includes(":") ? `[${text}]` : text;
        const normal = new URL(`http://${hostname}/`).hostname.replace(/^\[|\]$/g, "");
        expect(address(normal)).toEqual(read);
      }),
    );
    expect(formatAddress(address("2001:0DB8:0:0::1"))).toBe("2001:db8::1");
    expect(formatAddress(address("::ffff:7f00:1"))).toBe("127.0.0.1");
  });

  it.each(["", "127.1", "0x7f.0.0.1", "01.2.3.4", "fe80::1%eth0", "::1%0", "[::1]", "1.2.3.4 "])(
    "is not what %j says",
    (text) => {
      expect(parseAddress(text)).toBeUndefined();
    },
  );
});

describe("a block", () => {
  it.each(["10.0.0.0/8", "0.0.0.0/0", "192.168.1.1", "fd00::/8", "::/0", "::1"])(
    "is %s",
    (text) => {
      expect(parseCidr(text)).toBeDefined();
    },
  );

  it.each(["10.0.0.1/8", "10.0.0.0/33", "::/129", "10.0.0.0/", "10/8", "a/8", "::ffff:0:0/96", ""])(
    "is not %j",
    (text) => {
      expect(parseCidr(text)).toBeUndefined();
    },
  );
});

describe("the table of ranges", () => {
  // The first and the last address of each block, and their neighbours.
  it.each([
    ["0.0.0.0", "0.255.255.255", "unspecified"],
    ["10.0.0.0", "10.255.255.255", "private"],
    ["100.64.0.0", "100.127.255.255", "shared by a carrier"],
    ["127.0.0.0", "127.255.255.255", "loopback"],
    ["169.254.0.0", "169.254.255.255", "link-local"],
    ["172.16.0.0", "172.31.255.255", "private"],
    ["192.0.0.0", "192.0.0.255", "reserved"],
    ["192.0.2.0", "192.0.2.255", "for documentation"],
    ["192.168.0.0", "192.168.255.255", "private"],
    ["198.18.0.0", "198.19.255.255", "for benchmarks"],
    ["198.51.100.0", "198.51.100.255", "for documentation"],
    ["203.0.113.0", "203.0.113.255", "for documentation"],
    ["224.0.0.0", "239.255.255.255", "multicast"],
    ["240.0.0.0", "255.255.255.254", "reserved"],
    ["2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "6to4"],
    ["2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "for documentation"],
    ["fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private"],
    ["fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "link-local"],
    ["ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast"],
  ])("has %s to %s as %s", (first, last, name) => {
    const [low, high] = [address(first), address(last)];
    expect(denialOf(low, NOBODY)?.name).toBe(name);
    expect(denialOf(high, NOBODY)?.name).toBe(name);
    const below = { family: low.family, value: low.value - 1n };
    const above = { family: high.family, value: high.value + 1n };
    for (const beside of [below, above]) expect(denialOf(beside, NOBODY)?.name).not.toBe(name);
  });
});
