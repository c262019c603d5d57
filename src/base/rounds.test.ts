import { expect, it } from "vitest";
import { Rounds } from "./rounds.ts";

it("allows so many steps in a round, and calls once for the next", async () => {
  let calls = 0;
  await new Promise<void>((resolve) => {
    const rounds = new Rounds(2, () => {
      calls += 1;
      resolve();
    });
    expect([rounds.step(), rounds.step(), rounds.step(), rounds.step()]).toEqual([
      true,
      true,
      false,
      false,
    ]);
  });
  expect(calls).toBe(1);
});
