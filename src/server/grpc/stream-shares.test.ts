import { describe, expect, it } from "vitest";
import { addressOf, type CountedStream, StreamShares } from "./stream-shares.ts";

const shares = (): StreamShares =>
  new StreamShares({ strangersMax: 5, strangersPerAddressMax: 3, streamsPerTenantMax: 2 });

/** As many as are let in. */
function come(to: StreamShares, peer: string, count: number): CountedStream[] {
  const streams: CountedStream[] = [];
  while (streams.length < count && to.refusalOf(peer) === undefined) streams.push(to.arrive(peer));
  return streams;
}

describe("StreamShares", () => {
  it("leaves room for strangers of other addresses", () => {
    const all = shares();
    const flood = come(all, "192.0.2.1:1000", 9);
    expect(flood).toHaveLength(3);
    const other = come(all, "192.0.2.2:1000", 9);
    expect(other).toHaveLength(2);
    flood[0]?.enter("acme");
    expect(come(all, "192.0.2.1:1001", 9)).toHaveLength(1);
    for (const stream of other) stream.leave();
    expect(come(all, "192.0.2.1:1002", 9)).toHaveLength(0);
    expect(come(all, "192.0.2.3:1", 9)).toHaveLength(2);
  });

  it("gives one tenant so many, and another tenant its own", () => {
    const all = shares();
    const [first, second, third] = come(all, "192.0.2.1:1", 3);
    first?.enter("acme");
    second?.enter("acme");
    const refused = expect.objectContaining({ message: expect.stringMatching("the tenant has") });
    expect(() => third?.enter("acme")).toThrow(refused);
    third?.enter("globex");
    first?.leave();
    first?.leave();
    const [fourth, fifth] = come(all, "192.0.2.1:4", 2);
    fourth?.enter("acme");
    expect(() => fifth?.enter("acme")).toThrow(refused);
  });

  it("knows an address without its port, and of IPv6 the network", () => {
    expect(addressOf("192.0.2.1:1")).toBe(addressOf("192.0.2.1:2"));
    expect(addressOf("192.0.2.1:1")).not.toBe(addressOf("192.0.2.2:1"));
    expect(addressOf("[::ffff:192.0.2.1]:1")).toBe(addressOf("192.0.2.1:2"));
    expect(addressOf("::ffff:192.0.2.1:1")).toBe(addressOf("192.0.2.1:2"));
    expect(addressOf("[2001:db8::1]:1")).toBe(addressOf("[2001:db8::ffff:2]:9"));
    expect(addressOf("[2001:db8::1]:1")).not.toBe(addressOf("[2001:db8:0:1::1]:1"));
    expect(addressOf("unknown")).toBe("unknown");
  });
});
