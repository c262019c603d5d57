import { randomBytes, randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { Tidemill } from "../../../src/index.ts";
import {
  createHandled,
  eventuallyOwn,
  expectOnceInOrder,
  readOwners,
} from "../../support/cluster.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { recordingLogger } from "../../support/handled.ts";
import { CONSUMERS, goneOnAfterMs, holdBatches, QUICK } from "../../support/held-batch.ts";
import { recording } from "../../support/recording.ts";

const LOCK = "SELECT FROM tidemill.consumer_assignments WHERE consumer_name = $1 FOR UPDATE";
/** As a batch does it, so that it is told whose it is. */
const MARK = `SELECT pg_advisory_xact_lock_shared(
                hashtextextended('tidemill.batch:' || $1::text, 0))`;

/** A worker that owns all consumers, and has not beaten for so many seconds. */
async function addWorker({ pool }: TestDatabase, silentSeconds: number): Promise<string> {
  const id = randomUUID();
  await pool.query(
    `INSERT INTO tidemill.worker_nodes (worker_id, heartbeat_at)
     VALUES ($1, NOW() - make_interval(secs => $2))`,
    [id, silentSeconds],
  );
  await pool.query(
    `INSERT INTO tidemill.consumer_assignments (consumer_name, worker_id)
     SELECT unnest($1::text[]), $2`,
    [CONSUMERS, id],
  );
  return id;
}

describe("ends only the batches of dead workers:", () => {
  it("a stranger's session, or one that holds no consumer, is left alone", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const dead = await addWorker(database, 60);
    const [stranger, idle] = [await database.session(), await database.session()];
    await stranger.query("BEGIN");
    await stranger.query(MARK, [randomUUID()]);
    await stranger.query(LOCK, ["consumer-1"]);
    await idle.query("BEGIN");
    await idle.query(MARK, [dead]);
    const { logger, lines } = recordingLogger();
    const mill = await database.connect();
    const consumers = CONSUMERS.map((name) => recording(name));
    const worker = await mill.startWorker({ ...QUICK, logger, consumers });
    const postponed = (): number =>
      lines.filter(({ message }) => message === "rebalance postponed").length;
    await eventually(async () => {
      const owners = await readOwners(database.pool);
      expect([...owners.values()].filter((id) => id === worker.id)).toHaveLength(3);
      expect(postponed()).toBeGreaterThan(2); // It has looked for blockers each time.
    });
    for (const session of [stranger, idle]) await session.query("ROLLBACK");
    await eventuallyOwn(database.pool, [[worker, CONSUMERS.length]]);
    expect(lines.map(({ message }) => message)).not.toContain(
      "ended batches of a worker that stopped beating",
    );
  });

  it("one whose session may not be ended is told of, and free after batchTimeout", async () => {
    const { logger, lines } = recordingLogger();
    const told = (): unknown[] =>
      lines.filter(
        ({ message, level }) =>
          level === "error" && message === "could not end the batches of a dead worker",
      );
    const batchTimeout = 6_000;
    const held = await holdBatches({
      logger,
      options: { batchTimeout },
      others: connectWithoutRights,
    });
    const afterMs = await goneOnAfterMs(held, () => held.victim.kill("SIGSTOP"));
    expect(afterMs).toBeGreaterThan(QUICK.heartbeatTimeout + 1_000);
    expect(afterMs).toBeLessThan(batchTimeout + 2_000);
    expect(told()).toHaveLength(1);
    await expectOnceInOrder(held.database.pool, CONSUMERS, held.positions);
  });
});

/** As a role that may not signal the sessions of the superuser that the victim is. */
async function connectWithoutRights({ pool, url }: TestDatabase): Promise<Tidemill> {
  const role = `test_role_${randomBytes(6).toString("hex")}`;
  await pool.query(`CREATE ROLE ${role} LOGIN PASSWORD 'x'`);
  onCleanup(() => pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
  await pool.query(
    `GRANT USAGE ON SCHEMA tidemill TO ${role};
     GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tidemill TO ${role};
     GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA tidemill TO ${role};
     GRANT SELECT, INSERT ON handled TO ${role}`,
  );
  const address = new URL(url);
  [address.username, address.password] = [role, "x"];
  const mill = await Tidemill.connect(address.href);
  onCleanup(() => mill.close());
  return mill;
}
