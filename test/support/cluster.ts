import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { expect } from "vitest";
import type { Tidemill } from "../../src/index.ts";
import type { TestDatabase } from "./database.ts";
import { type EventuallyOptions, eventually } from "./eventually.ts";

// No unique key: an event that is handled twice shows as two rows.
const HANDLED = `
  CREATE TABLE handled (
    id       BIGINT GENERATED ALWAYS AS IDENTITY,
    consumer TEXT NOT NULL,
    position BIGINT NOT NULL,
    worker   UUID NOT NULL,
    batch    XID8 NOT NULL DEFAULT pg_current_xact_id(),
    at       TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
  )`;

export async function createHandled({ pool }: TestDatabase): Promise<void> {
  await pool.query(HANDLED);
}

export interface HandledRow {
  readonly consumer: string;
  readonly position: bigint;
  readonly worker: string;
  readonly batch: string;
  readonly at: Date;
}

/** In the order in which they were handled. */
export async function readHandled(pool: pg.Pool, name?: string): Promise<HandledRow[]> {
  const { rows } = await pool.query<HandledRow & { position: string }>(
    `SELECT consumer, position, worker, batch::text, at FROM handled
      WHERE $1::text IS NULL OR consumer = $1 ORDER BY id`,
    [name ?? null],
  );
  return rows.map((row) => ({ ...row, position: BigInt(row.position) }));
}

/** The positions that each of these consumers handled, in its order. */
export async function expectOnceInOrder(
  pool: pg.Pool,
  consumers: readonly string[],
  positions: readonly bigint[],
): Promise<void> {
  const expected = positions.map(String);
  const { rows } = await pool.query<{ consumer: string; positions: string[] }>(
    "SELECT consumer, array_agg(position::text ORDER BY id) AS positions FROM handled GROUP BY 1",
  );
  const found = new Map(rows.map((row) => [row.consumer, row.positions]));
  for (const name of consumers) expect(found.get(name) ?? [], name).toEqual(expected);
}

export async function readOwners(pool: pg.Pool): Promise<Map<string, string | null>> {
  const { rows } = await pool.query<{ consumer_name: string; worker_id: string | null }>(
    "SELECT consumer_name, worker_id FROM tidemill.consumer_assignments",
  );
  return new Map(rows.map((row) => [row.consumer_name, row.worker_id]));
}

/** Waits until the workers own exactly so many consumers each, and nobody else owns any. */
export async function eventuallyOwn(
  pool: pg.Pool,
  loads: readonly (readonly [{ readonly id: string }, number])[],
  options?: EventuallyOptions,
): Promise<Map<string, string | null>> {
  return await eventually(async () => {
    const owners = await readOwners(pool);
    const found = [...owners.values()];
    const counts = loads.map(([worker]) => found.filter((id) => id === worker.id).length);
    expect(counts).toEqual(loads.map(([, count]) => count));
    expect(found).toHaveLength(counts.reduce((sum, count) => sum + count, 0));
    return owners;
  }, options);
}

export async function readCheckpoint(pool: pg.Pool, name: string): Promise<bigint | undefined> {
  const { rows } = await pool.query<{ last_position: string }>(
    "SELECT last_position FROM tidemill.consumer_checkpoints WHERE consumer_name = $1",
    [name],
  );
  return rows[0] === undefined ? undefined : BigInt(rows[0].last_position);
}

export async function readWorkerIds(pool: pg.Pool): Promise<string[]> {
  const { rows } = await pool.query<{ worker_id: string }>(
    "SELECT worker_id FROM tidemill.worker_nodes ORDER BY worker_id",
  );
  return rows.map((row) => row.worker_id);
}

/** Appends single events, each to a stream of its own, and returns their positions. */
export async function appendEvents(
  mill: Tidemill,
  count: number,
  type = "Order",
): Promise<bigint[]> {
  const positions: bigint[] = [];
  for (let index = 0; index < count; index += 1) {
    const stream = { type, id: `${Date.now()}-${Math.random()}` };
    const { position } = await mill.append(stream, [{ type: `${type}Placed` }]);
    positions.push(position);
  }
  return positions;
}

/** Appends all the time, as a busy application does. `stop` returns every position. */
export function steadyAppends(mill: Tidemill, everyMs: number): { stop(): Promise<bigint[]> } {
  const stopping = new AbortController();
  const run = async (): Promise<bigint[]> => {
    const positions: bigint[] = [];
    while (!stopping.signal.aborted) {
      positions.push(...(await appendEvents(mill, 1)));
      await delay(everyMs);
    }
    return positions;
  };
  const running = run();
  running.catch(() => {}); // Reported by stop().
  return {
    stop: async () => {
      stopping.abort();
      return await running;
    },
  };
}

export async function waitForAll(
  mill: Tidemill,
  consumers: readonly string[],
  position: bigint,
): Promise<void> {
  await Promise.all(consumers.map((name) => mill.waitFor(name, { position })));
}

const JOURNAL = `
  CREATE TABLE journal (
    id      BIGINT GENERATED ALWAYS AS IDENTITY,
    at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    what    TEXT NOT NULL,
    subject TEXT NOT NULL,
    before  TEXT,
    after   TEXT
  );
  CREATE FUNCTION note_owner() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.journal (what, subject, before, after)
    VALUES ('owner', new.consumer_name, old.worker_id::text, new.worker_id::text);
    RETURN NULL;
  END $$;
  CREATE TRIGGER note AFTER UPDATE ON tidemill.consumer_assignments FOR EACH ROW
    WHEN (old.worker_id IS DISTINCT FROM new.worker_id) EXECUTE FUNCTION note_owner();
  CREATE FUNCTION note_status() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.journal (what, subject, before, after)
    VALUES ('status', new.worker_id::text, old.status, new.status);
    RETURN NULL;
  END $$;
  CREATE TRIGGER note AFTER UPDATE ON tidemill.worker_info FOR EACH ROW
    WHEN (old.status IS DISTINCT FROM new.status) EXECUTE FUNCTION note_status();
  CREATE FUNCTION note_leader() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.journal (what, subject, before, after)
    VALUES ('leader', new.term::text, old.leader_id::text, new.leader_id::text);
    RETURN NULL;
  END $$;
  CREATE TRIGGER note AFTER UPDATE ON tidemill.leader_term FOR EACH ROW
    WHEN (old.leader_id IS DISTINCT FROM new.leader_id OR old.term <> new.term)
    EXECUTE FUNCTION note_leader();
  CREATE FUNCTION note_removal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.journal (what, subject, before, after)
    VALUES ('registration', old.worker_id::text, 'there', NULL);
    RETURN NULL;
  END $$;
  CREATE TRIGGER note AFTER DELETE ON tidemill.worker_nodes FOR EACH ROW
    EXECUTE FUNCTION note_removal();`;

/** From now on every change of owner, status, leader and registration is kept, in order. */
export async function keepJournal({ pool }: TestDatabase): Promise<void> {
  await pool.query(JOURNAL);
}

export interface JournalRow {
  readonly id: number;
  readonly at: Date;
  readonly what: "owner" | "status" | "leader" | "registration";
  readonly subject: string;
  readonly before: string | null;
  readonly after: string | null;
}

export async function readJournal(pool: pg.Pool, afterId = 0): Promise<JournalRow[]> {
  const { rows } = await pool.query<JournalRow>(
    "SELECT id::int, at, what, subject, before, after FROM journal WHERE id > $1 ORDER BY id",
    [afterId],
  );
  return rows;
}

/** The server's own clock: everything that is measured is measured by it. */
export async function readServerTime(pool: pg.Pool): Promise<Date> {
  const { rows } = await pool.query<{ now: Date }>("SELECT clock_timestamp() AS now");
  return rows[0]!.now;
}
