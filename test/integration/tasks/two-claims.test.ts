import { randomUUID } from "node:crypto";
import { expect, it } from "vitest";
import { completed, queue } from "../../../src/index.ts";
import type { TaskFacts } from "../../../src/tasks/claimed-row.ts";
import { Claim, ClaimedTask } from "../../../src/tasks/claimed-task.ts";
import { EndWriter } from "../../../src/tasks/end-writer.ts";
import { EndedClaims } from "../../../src/tasks/ended-claims.ts";
import type { Settlement } from "../../../src/tasks/sql/finish.ts";
import { testDatabase } from "../../support/database.ts";

const orders = queue<number>("orders");
const handler = orders.handle(() => completed());

function claimed(id: string, generation: number, claimId: string): ClaimedTask {
  const owner = { queue: "orders", tenant: "default", priority: 5 };
  const place = { id, lane: 2, claimOrder: Number(id), attempt: generation, generation };
  const rest = { payload: "1", maxAttempts: 5, runAtMs: 0, partitionKey: undefined };
  const facts: TaskFacts = { ...place, ...rest, owner, rare: undefined };
  const sources = { laneOf: () => undefined, handlerOf: () => handler };
  const times = { claimedAtMs: 0, trustedUntilMs: 0, isHeldHead: false };
  return new ClaimedTask(facts, sources, new Claim(claimId), times);
}

const ends: Record<string, (task: ClaimedTask) => Settlement> = {
  completes: () => ({ kind: "complete", result: "" }),
  "comes back": ({ id, generation, claimId: claim_id }) => ({
    kind: "put-back",
    row: { id, generation, claim_id, outcome: "abandoned", delay: 0, refund: true },
  }),
};

it.for([
  ["completes", true],
  ["completes", false],
  ["comes back", true],
  ["comes back", false],
] as const)(
  "a claim that was lost is not accepted because the next of its task %s with it (first: %s)",
  async ([how, isFirst]) => {
    const database = await testDatabase();
    const mill = await database.connect();
    const { id } = await mill.enqueue(orders, 1);
    const claimId = randomUUID();
    await database.pool.query(
      `UPDATE tidemill.tasks
          SET state = 'running', attempt = 2, lease_generation = 2, claim_id = $1,
              leased_by = $1, claimed_at = NOW(), lease_until = NOW() + INTERVAL '1 minute'`,
      [claimId],
    );
    const [lost, next] = [claimed(id, 1, randomUUID()), claimed(id, 2, claimId)];
    for (const task of [lost, next]) task.settlement = ends[how]?.(task);
    const writer = new EndWriter(mill.engine.db, new EndedClaims());
    const verdictOf = await writer.write(isFirst ? [lost, next] : [next, lost], new Set());
    expect([verdictOf(lost), verdictOf(next)]).toEqual(["lost", "accepted"]);
  },
);
