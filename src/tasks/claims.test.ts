import { expect, it } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.ts";
import { TimeoutError } from "../base/errors.ts";
import { silentLogger } from "../base/log.ts";
import { Claims } from "./claims.ts";
import type { Executor } from "./executor.ts";
import { KeyLines } from "./key-lines.ts";
import { TaskMetrics } from "./metrics.ts";
import { queue } from "./queue.ts";
import type { TaskSession } from "./session.ts";
import { Settling } from "./settling.ts";
import { FIELD } from "./sql/claim.ts";

const handler = queue("orders").handle(() => undefined);
const LEASE_MS = 30_000;

interface Scene {
  readonly clock: ManualClock;
  readonly claims: Claims;
  /** How many tasks each accepted claim had. */
  readonly accepted: number[];
  /** Statements that were sent. */
  readonly sent: string[];
}

function newScene(): Scene {
  const clock = new ManualClock();
  const accepted: number[] = [];
  const sent: string[] = [];
  const session: Pick<TaskSession, "query"> = {
    query: ({ name }) => {
      sent.push(name);
      return Promise.resolve([]);
    },
  };
  const executor: Pick<Executor, "keys" | "accept"> = {
    keys: new KeyLines(),
    accept: (tasks) => void accepted.push(tasks.length),
  };
  const lane = { queue: "orders", tenant: "default", priority: 5 };
  const claims = new Claims(session as TaskSession, executor as Executor, {
    workerId: "worker",
    leaseSeconds: LEASE_MS / 1000,
    clock,
    logger: silentLogger,
    metrics: new TaskMetrics(),
    settling: new Settling("numbers"),
    sources: { laneOf: () => lane, handlerOf: () => handler },
  });
  return { clock, claims, accepted, sent };
}

const ROWS = {
  rows: [[1, 1, "", 1, "", 5, 0, "1"].join(FIELD)],
  missed: 0,
  hasPassed: false,
  until: new Date(0),
};

it("starts what an answer in time brings", async () => {
  const { clock, claims, accepted, sent } = newScene();
  await claims.take(async () => {
    clock.advance(LEASE_MS * 0.89);
    return ROWS;
  }, false);
  await claims.undoDoubtful();
  expect(accepted).toEqual([1]);
  expect(sent).toEqual([]);
});

it("starts nothing when the answer comes as the leases end, and gives it back", async () => {
  const { clock, claims, accepted, sent } = newScene();
  const late = claims.take(async () => {
    clock.advance(LEASE_MS * 0.9);
    return ROWS;
  }, false);
  await expect(late).rejects.toBeInstanceOf(TimeoutError);
  await claims.undoDoubtful();
  expect(accepted).toEqual([]);
  expect(sent).toEqual(["claim_bar", "packs_open_of_claim", "tasks_undo_claim"]);
});
