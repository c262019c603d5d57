import { expect, it } from "vitest";
import { ManualClock, settle } from "../../test/support/manual-clock.ts";
import type { Clock } from "../base/clock.ts";
import { silentLogger } from "../base/log.ts";
import type { Database } from "../db/database.ts";
import { ClaimedRow } from "./claimed-row.ts";
import { Claim, ClaimedTask } from "./claimed-task.ts";
import type { Executor } from "./executor.ts";
import { TaskMetrics } from "./metrics.ts";
import { queue } from "./queue.ts";
import { Renewer, type RenewerOptions } from "./renewer.ts";
import { FIELD } from "./sql/claim.ts";

const handler = queue("orders").handle(() => undefined);
const LEASE_MS = 2_000;

function claimedAt(claimedAtMs: number, claimId = "claim"): ClaimedTask {
  const row = [1, 1, "", 1, "", 5, 0, "1"].join(FIELD);
  const lane = { queue: "orders", tenant: "default", priority: 5 };
  const sources = { laneOf: () => lane, handlerOf: () => handler };
  const trustedUntilMs = claimedAtMs + LEASE_MS * 0.9;
  return new ClaimedTask(new ClaimedRow(row), sources, new Claim(claimId), {
    claimedAtMs,
    trustedUntilMs,
    isHeldHead: false,
  });
}

const optionsWith = (clock: Clock): RenewerOptions => ({
  packs: { open: () => Promise.resolve(new Set()) },
  leaseSeconds: LEASE_MS / 1000,
  isPooled: true,
  clock,
  logger: silentLogger,
  metrics: new TaskMetrics(),
});

it("gives a task up a tenth before its lease ends, when no renewal is answered", async () => {
  const clock = new ManualClock();
  const held = new Set([claimedAt(1), claimedAt(50), claimedAt(199)]);
  const lostAtMs: number[] = [];
  const executor: Pick<Executor, "held" | "lose"> = {
    held,
    lose: (task) => {
      held.delete(task);
      lostAtMs.push(clock.now());
    },
  };
  const silent: Pick<Database, "connect"> = { connect: () => new Promise(() => {}) };
  const renewer = new Renewer(silent as Database, executor as Executor, optionsWith(clock));
  void renewer.run(new AbortController().signal);
  while (clock.now() < LEASE_MS) {
    await settle();
    clock.advance(clock.nextMs ?? LEASE_MS);
  }
  expect(lostAtMs).toEqual([1_801, 1_850, 1_999]);
});

it("gives up the older of two claims of one task, though both are renewed together", async () => {
  const clock = new ManualClock();
  const [older, newer] = [claimedAt(1, "older"), claimedAt(2, "newer")];
  const held = new Set([older, newer]);
  const executor = { held, lose: (task: ClaimedTask) => held.delete(task) };
  const asked: unknown[] = [];
  const server = {
    query: async (_statement: unknown, values: readonly unknown[]): Promise<object[]> => {
      asked.push(values[2]);
      const claims = String(values[2]).slice(1, -1).split(",");
      const place = claims.indexOf("newer") + 1;
      return place === 0 ? [] : [{ place, until: new Date(), cancel_reason: null }];
    },
  };
  const database = { connect: async () => server };
  const renewer = new Renewer(
    database as unknown as Database,
    executor as unknown as Executor,
    optionsWith(clock),
  );
  void renewer.run(new AbortController().signal);
  while (clock.now() < LEASE_MS / 2) {
    await settle();
    clock.advance(clock.nextMs ?? LEASE_MS);
  }
  expect(asked[0]).toBe("{older,newer}");
  expect(held).toEqual(new Set([newer]));
});
