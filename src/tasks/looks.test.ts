import { expect, it } from "vitest";
import type { TurnResult } from "../base/loop.ts";
import { Looks } from "./looks.ts";

function watched(looks: Looks): { isTold: boolean } {
  const watch = { isTold: false };
  void looks.next().then(() => {
    watch.isTold = true;
  });
  return watch;
}

const turn = (result: TurnResult) => () => Promise.resolve(result);

it("tells of a turn that began after it was asked, and had nothing left to do", async () => {
  const looks = new Looks();
  let late: { isTold: boolean } | undefined;
  const early = watched(looks);
  await looks.during(() => {
    late = watched(looks);
    return Promise.resolve({ restMs: 1 });
  });
  expect([early.isTold, late?.isTold]).toEqual([true, false]);
  await looks.during(turn({ restMs: 1 }));
  expect(late?.isTold).toBe(true);
});

it("waits while there is more to do, but not for ever, and not for turns that failed", async () => {
  const looks = new Looks();
  const one = watched(looks);
  await expect(looks.during(() => Promise.reject(new Error("away")))).rejects.toThrow("away");
  for (let nth = 0; nth < 4; nth += 1) await looks.during(turn("again"));
  expect(one.isTold).toBe(false);
  await looks.during(turn("again"));
  expect(one.isTold).toBe(true);
});

it("says in a turn whether somebody waits for it", async () => {
  const looks = new Looks();
  const isAwaited: boolean[] = [];
  const look = (): Promise<TurnResult> => {
    isAwaited.push(looks.isAwaited);
    return Promise.resolve({ restMs: 1 });
  };
  await looks.during(look);
  void looks.next();
  await looks.during(look);
  await looks.during(look);
  expect(isAwaited).toEqual([false, true, false]);
});
