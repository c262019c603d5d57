import { describe, expect, it } from "vitest";
import { ClaimedRow } from "./claimed-row.ts";
import { FIELD } from "./sql/claim.ts";

const row = (...fields: (string | number)[]): ClaimedRow => new ClaimedRow(fields.join(FIELD));
const FIRST = [12, 3, "", 1, "", 20, 1_700_000_000_000];

describe("a claimed row", () => {
  it("takes from the first claim what is not said", () => {
    const plain = row(...FIRST, '{"a":1}');
    expect(plain).toMatchObject({ id: "12", lane: 3, claimOrder: 12, attempt: 1, generation: 1 });
    expect(plain).toMatchObject({ maxAttempts: 20, runAtMs: 1_700_000_000_000 });
    expect(plain.payload).toBe('{"a":1}');
    expect([plain.owner, plain.rare]).toEqual([undefined, undefined]);
  });

  it("knows an order and a generation of their own", () => {
    const again = row(12, 3, 40, 2, 5, 20, 0, "1");
    expect(again).toMatchObject({ id: "12", claimOrder: 40, attempt: 2, generation: 5 });
  });

  it("tells whose it is when the lane does not", () => {
    const keyed = row(...FIRST, "orders", "acme", 5, "key", "1");
    expect(keyed.owner).toEqual({ queue: "orders", tenant: "acme", priority: 5 });
    expect(keyed.partitionKey).toBe("key");
    expect(keyed.rare).toBeUndefined();
    expect(keyed.payload).toBe("1");
  });

  it("reads what few tasks have, beside an owner or without", () => {
    const rare = [1_600_000_000_000, "f", "", "text/plain", "\\x6869", '{"webhook":"http://a"}'];
    const owned = row(...FIRST, "orders", "acme", 5, "", ...rare, "");
    for (const one of [row(...FIRST, ...rare, ""), owned]) {
      expect(one.rare).toEqual({
        createdAtMs: 1_600_000_000_000,
        isOnProbation: false,
        kind: undefined,
        contentType: "text/plain",
        bytes: Buffer.from("hi"),
        options: '{"webhook":"http://a"}',
      });
      expect(one.payload).toBe("");
    }
    expect(owned.partitionKey).toBeUndefined();
  });
});
