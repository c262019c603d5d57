import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { beginTerm, holdTerm } from "../../src/cluster/sql/leader.ts";
import { closedBy } from "../../src/consumers/frontier.ts";
import { observe, openEpoch } from "../../src/consumers/sql/frontier.ts";
import type { Connection } from "../../src/db/database.ts";
import { readCeiling } from "../../src/db/sql/epoch.ts";
import { insertEvents } from "../../src/events/sql/append.ts";
import { readEventsAfter } from "../../src/events/sql/read.ts";
import { ScheduleAdmin } from "../../src/schedules/admin.ts";
import { type Fired, fireSchedule } from "../../src/schedules/firing.ts";
import { enqueueTasks } from "../../src/tasks/enqueue.ts";
import type { Racer, Run } from "../support/interleaver.ts";
import {
  databaseOf,
  enqueueContext,
  orders,
  type RaceScene,
  raceScene,
  resetPending,
} from "./race-scene.ts";

/*
 * Who writes what others must find exactly once: positions of the log, idempotency keys, ticks.
 */

describe("an append and an epoch of the frontier", () => {
  /** What was said to be settled, and what of it was visible. */
  interface Closed {
    readonly ceiling: bigint;
    readonly visible: readonly bigint[];
  }

  const append = async (tx: Connection, id: string): Promise<unknown> => {
    const event = { ord: 1, id: randomUUID(), type: "Paid", version: 1, json: "{}" };
    return await insertEvents(tx, { type: "Order", id }, { kind: "any" }, [JSON.stringify(event)]);
  };

  /** As the reader does it: ceiling, fence, look; and only then rows. */
  const readerOf =
    (withLockers: boolean) =>
    async ({ connection }: Racer): Promise<Closed | undefined> => {
      const sequence = "tidemill.events_global_position_seq";
      const ceiling = await readCeiling(connection, sequence);
      const epoch = await openEpoch(connection, ceiling, withLockers);
      const seen = await observe(connection, withLockers);
      if (closedBy(epoch, seen) === undefined) return undefined;
      const events = await readEventsAfter(connection, 0n, 100);
      return { ceiling, visible: events.map((event) => event.position) };
    };

  const check = async ({ admin }: RaceScene, run: Run): Promise<string> => {
    const closed = run.result<Closed | undefined>("reader");
    if (closed === undefined) return "held";
    const { rows } = await admin.query<{ position: string }>(
      "SELECT global_position AS position FROM tidemill.events WHERE global_position <= $1",
      [String(closed.ceiling)],
    );
    expect(closed.visible).toEqual(expect.arrayContaining(rows.map((row) => BigInt(row.position))));
    return "closed";
  };

  it.each([
    ["by its fence", false],
    ["by who holds locks", true],
  ])("it closes over no position that commits later (%s)", async (_, withLockers) => {
    const scene = await raceScene(2);
    const ends = await scene.interleaver.run({
      scripts: {
        appender: (racer) => racer.transaction((tx) => append(tx, "1")),
        reader: readerOf(withLockers),
      },
      reset: () => resetPending(scene, 0),
      check: (run) => check(scene, run),
    });
    // A writer anywhere on the server may hold the fence, but nobody else's lock counts.
    if (withLockers) expect(Object.keys(ends).sort()).toEqual(["closed", "held"]);
  });

  /** A transaction id comes first, and whoever had it first need not have the lower position. */
  const early = (racer: Racer): Promise<unknown> =>
    racer.transaction(() => racer.client.query("SELECT pg_current_xact_id()"));

  it("nor when an older transaction ends before the append (by its fence)", async () => {
    const scene = await raceScene(3);
    await scene.interleaver.run({
      scripts: {
        early,
        appender: (racer) => racer.transaction((tx) => append(tx, "1")),
        reader: readerOf(false),
      },
      reset: () => resetPending(scene, 0),
      check: (run) => check(scene, run),
    });
  });

  it("nor when two appends cross (by who holds locks)", async () => {
    const scene = await raceScene(3);
    const appender = (racer: Racer): Promise<unknown> =>
      racer.transaction(async (tx) => {
        await racer.client.query("SELECT pg_current_xact_id()");
        return await append(tx, racer.name);
      });
    await scene.interleaver.run({
      scripts: { first: appender, second: appender, reader: readerOf(true) },
      sample: { count: 60, seed: 737 },
      reset: () => resetPending(scene, 0),
      check: (run) => check(scene, run),
    });
  });
});

describe("two enqueues with one idempotency key", () => {
  const TASK = { payload: 1, idempotencyKey: "once" };

  it.each(["a new key", "an expired key"])("store one task (%s)", async (what) => {
    const scene = await raceScene(2);
    const context = enqueueContext(scene.database);
    const enqueue = (racer: Racer): Promise<string[]> =>
      racer.transaction(() => enqueueTasks(context, orders, [TASK], { tx: racer.client }));
    const ends = await scene.interleaver.run({
      scripts: { first: enqueue, second: enqueue },
      reset: async () => {
        await resetPending(scene, 0);
        if (what === "a new key") return;
        await scene.admin.query(
          `INSERT INTO tidemill.task_idempotency (tenant, key, hash, task_id, expires_at)
           VALUES ('default', 'once', 'another', 1, NOW() - INTERVAL '1 second')`,
        );
      },
      check: async (run) => {
        const [first, second] = ["first", "second"].map(run.result<string[]>);
        expect(first).toEqual(second);
        const { rows } = await scene.admin.query<{ id: string; key_of: string }>(
          `SELECT task.id, known.task_id AS key_of
             FROM tidemill.tasks AS task CROSS JOIN tidemill.task_idempotency AS known`,
        );
        expect(rows).toEqual([{ id: first?.[0], key_of: first?.[0] }]);
        return run.commits[0] ?? "";
      },
    });
    expect(Object.keys(ends).sort()).toEqual(["first", "second"]);
  });

  it("store the second one's when the first is rolled back", async () => {
    const scene = await raceScene(2);
    const context = enqueueContext(scene.database);
    const enqueue = (end: "COMMIT" | "ROLLBACK") => (racer: Racer) =>
      racer.transaction(() => enqueueTasks(context, orders, [TASK], { tx: racer.client }), end);
    await scene.interleaver.run({
      scripts: { undone: enqueue("ROLLBACK"), kept: enqueue("COMMIT") },
      reset: () => resetPending(scene, 0),
      check: async (run) => {
        const { rows } = await scene.admin.query<{ id: string }>("SELECT id FROM tidemill.tasks");
        expect(rows.map((row) => row.id)).toEqual(run.result("kept"));
        return "kept";
      },
    });
  });
});

describe("a tick that two leaders fire", () => {
  const AT = new Date("2026-01-01T00:00:00Z");
  const LEADERS = { old: randomUUID(), next: randomUUID() };

  type MayFire = (tx: Connection, term: bigint, leaderId: string) => Promise<boolean>;

  const race = async (mayFire: MayFire, begin: typeof beginTerm): Promise<void> => {
    const scene = await raceScene(2);
    const context = enqueueContext(scene.database);
    const schedules = new ScheduleAdmin(context, "changes");
    await schedules.put("report", { cron: "@yearly", queue: orders, payload: 1, catchUp: "once" });
    let term = 0n;
    const fire = (racer: Racer, ofTerm: bigint, id: string): Promise<Fired | undefined> => {
      const db = databaseOf(racer, context.db);
      const due = { tenant: "default", name: "report", nextAt: AT };
      return fireSchedule({ ...context, db }, due, (tx) => mayFire(tx, ofTerm, id));
    };
    const ends = await scene.interleaver.run({
      scripts: {
        old: (racer) => fire(racer, term, LEADERS.old),
        next: async (racer) =>
          await fire(racer, await begin(racer.connection, LEADERS.next), LEADERS.next),
      },
      reset: async () => {
        await resetPending(scene, 0);
        await scene.admin.query("UPDATE tidemill.schedules SET next_at = $1, missed = 0", [AT]);
        term = await beginTerm(context.db, LEADERS.old);
      },
      check: async (run) => {
        const fired = (["old", "next"] as const).filter((name) => run.result(name) !== undefined);
        expect(fired).toHaveLength(1);
        const asked = run.moves.indexOf("old leader_hold_term");
        if (asked !== -1 && fired[0] === "old") {
          expect(asked).toBeLessThan(run.moves.indexOf("next leader_begin_term"));
        }
        const { rows } = await scene.admin.query<{ id: string; tick: Date; last: string }>(
          `SELECT task.id, firing.tick, schedule.last_task_id AS last
             FROM tidemill.schedules AS schedule
             LEFT JOIN tidemill.schedule_firings AS firing ON firing.name = schedule.name
             FULL JOIN tidemill.tasks AS task ON task.id = firing.task_id`,
        );
        expect(rows).toHaveLength(1);
        expect(rows[0]?.last).toBe(rows[0]?.id);
        return fired[0] ?? "";
      },
    });
    expect(Object.keys(ends).sort()).toEqual(["next", "old"]);
  };

  it("enqueues one task, and only the term's holder fires it", async () => {
    await race(holdTerm, beginTerm);
  });

  it("enqueues one task even if both took themselves for the leader", async () => {
    await race(
      async () => true,
      async () => 0n,
    );
  });
});
