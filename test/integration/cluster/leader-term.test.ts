import { randomUUID } from "node:crypto";
import { expect, it } from "vitest";
import { silentLogger } from "../../../src/base/log.ts";
import {
  moveBusyAssignment,
  moveFreeAssignments,
  type OwnerChange,
} from "../../../src/cluster/sql/assignments.ts";
import { beginTerm, endTerm, holdTerm } from "../../../src/cluster/sql/leader.ts";
import { type Connection, Database } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { readOwners } from "../../support/cluster.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";

interface Scene {
  readonly database: TestDatabase;
  /** Two leaders, each on a session of its own, and who they are. */
  readonly old: Connection;
  readonly next: Connection;
  readonly oldId: string;
  readonly nextId: string;
  /** What the old leader wants: the consumer goes from itself to the other. */
  readonly change: OwnerChange;
}

async function newScene(): Promise<Scene> {
  const database = await testDatabase();
  const db = new Database({
    url: database.url,
    names: resolveNames(),
    logger: silentLogger,
    poolSize: 1,
    applicationName: "leader-term",
    preparedStatements: false,
    queryTimeoutMs: 30_000,
    connectTimeoutMs: 10_000,
  });
  onCleanup(() => db.close());
  const [old, next] = [await db.connect("old"), await db.connect("next")];
  onCleanup(async () => {
    await Promise.all([old.close(), next.close()]);
  });
  const [oldId, nextId] = [randomUUID(), randomUUID()];
  await database.pool.query("INSERT INTO tidemill.worker_nodes VALUES ($1), ($2)", [oldId, nextId]);
  await database.pool.query("INSERT INTO tidemill.consumer_assignments VALUES ('contested', $1)", [
    oldId,
  ]);
  const change = { consumer: "contested", from: oldId, to: nextId };
  return { database, old, next, oldId, nextId, change };
}

async function eventuallyBlocked({ pool }: TestDatabase, name: string): Promise<void> {
  await eventually(async () => {
    const { rows } = await pool.query(
      `SELECT FROM pg_stat_activity
        WHERE application_name = $1 AND wait_event_type = 'Lock'
          AND datname = current_database()`,
      [`leader-term ${name}`],
    );
    expect(rows).toHaveLength(1);
  });
}

const ownerIn = async ({ database }: Scene): Promise<string | null | undefined> =>
  (await readOwners(database.pool)).get("contested");

it("lets the leader of the current term move a consumer", async () => {
  const scene = await newScene();
  const term = await beginTerm(scene.old, scene.oldId);
  const leader = { term, leaderId: scene.oldId };
  expect(await moveFreeAssignments(scene.old, leader, [scene.change])).toEqual(["contested"]);
  expect(await ownerIn(scene)).toBe(scene.nextId);
});

it("keeps a new leader waiting for a write in flight, and rejects the old one's next", async () => {
  const scene = await newScene();
  const { database, old, next, oldId, nextId, change } = scene;
  const term = await beginTerm(old, oldId);
  const leader = { term, leaderId: oldId };
  await old.client.query("BEGIN");
  expect(await moveFreeAssignments(old, leader, [change])).toEqual(["contested"]);
  let isBegun = false;
  const beginning = beginTerm(next, nextId).finally(() => {
    isBegun = true;
  });
  await eventuallyBlocked(database, "next");
  expect(isBegun).toBe(false);
  await old.client.query("COMMIT");
  expect(await beginning).toBe(term + 1n);
  expect(await ownerIn(scene)).toBe(nextId);
  // The old leader was paused and goes on as if nothing had happened.
  const back = { consumer: "contested", from: nextId, to: oldId };
  expect(await moveFreeAssignments(old, leader, [back])).toEqual([]);
  await old.client.query("BEGIN");
  expect(await moveBusyAssignment(old, leader, back, 1_000)).toBe(false);
  expect(await holdTerm(old, term, oldId)).toBe(false);
  await old.client.query("COMMIT");
  expect(await ownerIn(scene)).toBe(nextId);
});

it("rejects a write that began while the new leader was beginning its term", async () => {
  const scene = await newScene();
  const { database, old, next, oldId, nextId, change } = scene;
  const leader = { term: await beginTerm(old, oldId), leaderId: oldId };
  await next.client.query("BEGIN");
  await beginTerm(next, nextId);
  const late = moveFreeAssignments(old, leader, [change]);
  await eventuallyBlocked(database, "old");
  await next.client.query("COMMIT");
  expect(await late).toEqual([]);
  expect(await ownerIn(scene)).toBe(oldId);
});

it("lets the old leader write on when the new one's beginning is rolled back", async () => {
  const scene = await newScene();
  const { database, old, next, oldId, nextId, change } = scene;
  const leader = { term: await beginTerm(old, oldId), leaderId: oldId };
  await next.client.query("BEGIN");
  await beginTerm(next, nextId);
  const waiting = moveFreeAssignments(old, leader, [change]);
  await eventuallyBlocked(database, "old");
  await next.client.query("ROLLBACK");
  expect(await waiting).toEqual(["contested"]);
});

it("holds a term to the end of the transaction that asked for it", async () => {
  const scene = await newScene();
  const { database, old, next, oldId, nextId } = scene;
  const term = await beginTerm(old, oldId);
  await old.client.query("BEGIN");
  expect(await holdTerm(old, term, oldId)).toBe(true);
  const beginning = beginTerm(next, nextId);
  await eventuallyBlocked(database, "next");
  await old.client.query("COMMIT");
  expect(await beginning).toBe(term + 1n);
});

it("takes the right number under another leader's name for no term at all", async () => {
  const scene = await newScene();
  const { old, next, oldId, nextId, change } = scene;
  const term = await beginTerm(old, oldId);
  const pretender = { term, leaderId: nextId };
  expect(await moveFreeAssignments(next, pretender, [change])).toEqual([]);
  expect(await holdTerm(next, term, nextId)).toBe(false);
  expect(await endTerm(next, term, nextId)).toBe(false);
  expect(await ownerIn(scene)).toBe(oldId);
});

it("writes nothing more in a term that it ended itself", async () => {
  const scene = await newScene();
  const { old, oldId, change } = scene;
  const term = await beginTerm(old, oldId);
  expect(await endTerm(old, term, oldId)).toBe(true);
  expect(await moveFreeAssignments(old, { term, leaderId: oldId }, [change])).toEqual([]);
  expect(await ownerIn(scene)).toBe(oldId);
});

it("moves no consumer whose owner is not the one it was decided for", async () => {
  const scene = await newScene();
  const { old, oldId, nextId } = scene;
  const leader = { term: await beginTerm(old, oldId), leaderId: oldId };
  const stale = { consumer: "contested", from: undefined, to: nextId };
  expect(await moveFreeAssignments(old, leader, [stale])).toEqual([]);
  expect(await ownerIn(scene)).toBe(oldId);
});
