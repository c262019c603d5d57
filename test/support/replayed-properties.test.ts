import fc from "fast-check";
import { expect, it } from "vitest";

const never = fc.property(fc.integer(), () => false);
const REPLAY =
  /^see it again with: TIDEMILL_TEST_SEED=-?42 npx vitest run test\/support\/\S+\.test\.ts\n/;

it("tells how to see a property fail again", () => {
  expect(() => fc.assert(never, { seed: 42 })).toThrow(REPLAY);
});

it("tells it of one that waits, too", async () => {
  const never = fc.asyncProperty(fc.integer(), () => Promise.resolve(false));
  await expect(fc.assert(never, { seed: 42 })).rejects.toThrow(REPLAY);
});

it("draws what is asked for, without a seed of its own", () => {
  const { seed, reporter } = fc.readConfigureGlobal();
  expect(reporter).toBeTypeOf("function");
  const { TIDEMILL_TEST_SEED: given, CI: isCi } = process.env;
  if (given !== undefined) expect(seed).toBe(Number(given));
  else expect(seed).toBe(isCi === "true" ? 1 : undefined);
});
