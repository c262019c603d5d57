import { describe, expect, it } from "vitest";
import { isUuid, uuidOf, uuidv7 } from "./uuid.ts";

describe("uuidv7", () => {
  it("is a version 7 UUID of the right variant", () => {
    for (let time = 0; time < 1_000; time += 1) {
      expect(uuidv7()).toMatch(
        /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
      );
    }
  });

  it("carries the time it was made", () => {
    const future = Date.now() + 3_600_000;
    const made = uuidv7(future);
    expect(Number.parseInt(made.replaceAll("-", "").slice(0, 12), 16)).toBe(future);
  });

  it("grows strictly within a millisecond, beyond its counter, and after a step back", () => {
    const at = Date.now() + 7_200_000;
    const made = [
      ...Array.from({ length: 10_000 }, () => uuidv7(at)),
      ...Array.from({ length: 10 }, () => uuidv7(at - 60_000)),
      uuidv7(at + 60_000),
    ];
    expect(new Set(made).size).toBe(made.length);
    expect(made.toSorted()).toEqual(made);
  });
});

describe("isUuid", () => {
  it.each(["00000000-0000-0000-0000-000000000000", "0190163D-8694-739B-AEA5-966C26F8AD91"])(
    "knows %s",
    (text) => {
      expect(isUuid(text)).toBe(true);
    },
  );

  it.each(["", "x", "0190163d8694739baea5966c26f8ad91", "{0190163d-8694-739b-aea5-966c26f8ad91}"])(
    "refuses %j",
    (text) => {
      expect(isUuid(text)).toBe(false);
    },
  );

  it("refuses what only begins or ends with one", () => {
    const one = uuidv7();
    expect([`${one}\n`, ` ${one}`, `${one}0`].some(isUuid)).toBe(false);
  });
});

describe("uuidOf", () => {
  it("is a version 8 UUID, the same for the same text only", () => {
    expect(uuidOf("a")).toMatch(
      /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    );
    expect(uuidOf("a")).toBe(uuidOf("a"));
    expect(uuidOf("b")).not.toBe(uuidOf("a"));
  });
});
