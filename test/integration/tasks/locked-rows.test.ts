import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import {
  completed,
  failed,
  nack,
  type Outcome,
  queue,
  type TaskHandle,
  Tidemill,
  type Worker,
} from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type PgBouncer, startPgBouncer, whyNoPgBouncer } from "../../support/pgbouncer.ts";
import { aborted, BRISK, gate } from "./scene.ts";

/*
 * A handler may end while a transaction has its task's row locked: its own, which called
 * assert_lease and is still open, or a stranger's. Its end waits; those of others must not.
 */

const missing = whyNoPgBouncer();
let pooler: PgBouncer | undefined;

beforeAll(async () => {
  if (missing === undefined) pooler = await startPgBouncer(inject("databaseUrl"));
});

afterAll(async () => {
  await pooler?.stop();
});

interface Order {
  /** Whose handler locks its own row and leaves the transaction open. */
  readonly locks?: boolean;
  readonly ends: "completed" | "retry" | "failed" | "dead" | "timeout";
}

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly worker: Worker;
  /** Ends the transaction that has the row. */
  readonly release: (statements?: string) => Promise<void>;
  enqueue(order: Order): Promise<TaskHandle>;
  /** Resolves when the row is locked. */
  readonly locked: Promise<void>;
}

const ENDS: Readonly<Record<Order["ends"], Outcome>> = {
  completed: completed(),
  retry: failed("try again"),
  failed: failed("not again", { retry: false }),
  dead: failed("for the last time"),
  timeout: completed(),
};

const orders = queue<Order>("orders", { backoff: { kind: "fixed", baseSeconds: 600 } });

async function scene(isPooled: boolean): Promise<Scene> {
  const database = await testDatabase();
  const mill = await connect(database, isPooled);
  const holder = await database.session();
  const locking = gate();
  const handler = orders.handle(async ({ payload }, { token, signal }) => {
    if (payload.locks === true) {
      const { taskId, generation, claimId } = token;
      await holder.query("BEGIN");
      await holder.query("SELECT tidemill.assert_lease($1, $2, $3)", [taskId, generation, claimId]);
      if (payload.ends === "timeout") await aborted(signal);
      locking.open();
    }
    return ENDS[payload.ends];
  });
  const how = isPooled ? ({ dispatcherStrategy: "poll", leaderStrategy: "lease" } as const) : {};
  const worker = await mill.startWorker({ ...BRISK, ...how, handlers: [handler] });
  return {
    database,
    mill,
    worker,
    locked: locking.opened,
    release: async (statements = "ROLLBACK") => void (await holder.query(statements)),
    enqueue: (order) =>
      mill.enqueue(orders, order, {
        ...(order.ends === "dead" ? { maxAttempts: 1 } : {}),
        ...(order.ends === "timeout" ? { timeoutSeconds: 0.2 } : {}),
      }),
  };
}

async function connect(database: TestDatabase, isPooled: boolean): Promise<Tidemill> {
  if (!isPooled) return await database.connect();
  if (pooler === undefined) throw new Error("no pooler");
  const mill = await Tidemill.connect(pooler.through(database.url));
  onCleanup(() => mill.close());
  return mill;
}

const stateOf = async ({ mill }: Scene, { id }: TaskHandle): Promise<string> =>
  (await mill.tasks.get(id)).state;

/** One task for each way to end ends, long before anything gives up waiting for the lock. */
async function expectOthersEnd(one: Scene): Promise<void> {
  const ways = ["completed", "retry", "failed", "dead"] as const;
  const others = await Promise.all(ways.map((ends) => one.enqueue({ ends })));
  await eventually(
    async () => {
      const states = await Promise.all(others.map((other) => stateOf(one, other)));
      expect(states).toEqual(["completed", "scheduled", "failed", "dead"]);
    },
    { timeoutMs: 8_000 },
  );
}

describe.each([
  ["directly", false],
  ["through PgBouncer", true],
] as const)("connected %s, while a row is locked", (_how, isPooled) => {
  it.for([
    ["completed", "completed"],
    ["retry", "scheduled"],
    ["failed", "failed"],
    ["dead", "dead"],
    ["timeout", "scheduled"],
  ] as const)("a task that ends as %s waits, and the others do not", async (ways, { skip }) => {
    if (isPooled && missing !== undefined) skip(missing);
    const [ends, state] = ways;
    const one = await scene(isPooled);
    const held = await one.enqueue({ ends, locks: true });
    await one.locked;
    await expectOthersEnd(one);
    expect(await stateOf(one, held)).toBe("running");
    await one.release();
    await eventually(async () => expect(await stateOf(one, held)).toBe(state));
  });
});

describe("a row that is locked", () => {
  it("is let go when its lease is lost meanwhile", async () => {
    const one = await scene(false);
    const held = await one.enqueue({ ends: "completed", locks: true });
    await one.locked;
    await expectOthersEnd(one);
    await one.release("UPDATE tidemill.tasks SET claim_id = gen_random_uuid(); COMMIT");
    await eventually(() =>
      expect(one.mill.taskMetrics.leaseLosses.text()).toMatch(
        /lease_losses_total\{queue="orders"\} 1/,
      ),
    );
    expect(await stateOf(one, held)).toBe("running");
    await one.worker.stop();
  });

  it("of a task that goes back keeps the later ones of its key waiting", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const locking = gate();
    const ran: number[] = [];
    const steps = queue<number>("steps");
    const handler = steps.handle(async ({ payload, attempt }) => {
      ran.push(payload);
      if (payload !== 1 || attempt > 1) return completed();
      await locking.opened;
      return nack(0, "once more"); // What waits behind it in memory goes back.
    });
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    const key = { partitionKey: "order:1" };
    const [first, second] = await mill.enqueueMany(
      steps,
      [1, 2, 3].map((payload) => ({ payload, ...key })),
    );
    const holder = await database.session();
    await eventually(async () => {
      const claimed = "SELECT FROM tidemill.tasks WHERE state = 'running'";
      expect((await holder.query(claimed)).rows).toHaveLength(3);
    });
    await holder.query("BEGIN");
    await holder.query("SELECT FROM tidemill.tasks WHERE id = $1 FOR SHARE", [second?.id]);
    locking.open();
    await first?.result();
    // Whatever may be claimed now was claimed before this one of another key.
    await (await mill.enqueue(steps, 9, { partitionKey: "order:2" })).result();
    expect(ran).toEqual([1, 1, 9]);
    await holder.query("ROLLBACK");
    await eventually(() => expect(ran).toEqual([1, 1, 9, 2, 3]));
  });
});
