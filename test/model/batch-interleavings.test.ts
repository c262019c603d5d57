import { randomUUID } from "node:crypto";
import type pg from "pg";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { moveBusyAssignment, readAssignmentsOf } from "../../src/cluster/sql/assignments.ts";
import { beginTerm } from "../../src/cluster/sql/leader.ts";
import { type BatchOutcome, runBatch } from "../../src/consumers/batch.ts";
import { consumer, partitionsOf } from "../../src/consumers/consumer.ts";
import { readPartitionState } from "../../src/consumers/sql/states.ts";
import { Connection, type Database } from "../../src/db/database.ts";
import { testDatabase } from "../support/database.ts";
import { engineDatabase } from "../support/engine-database.ts";
import { Interleaver, type Racer, type Run } from "../support/interleaver.ts";
import { eventsAt } from "../support/persisted-event.ts";

/*
 * The batches of one consumer, and whoever may come between, in every order. Whatever happens, each
 * event is handled once, and the checkpoint says so.
 */

const [OLD, NEXT] = [randomUUID(), randomUUID()];
const NAME = "view";
const LAST = 2n;

const [VIEW] = partitionsOf(
  consumer(NAME, {
    handle: async (event, { tx, workerId }) => {
      await tx.query("INSERT INTO handled (position, worker_id) VALUES ($1, $2)", [
        String(event.position),
        workerId,
      ]);
    },
  }),
);

interface Scene {
  readonly admin: pg.Client;
  readonly db: Database;
  readonly interleaver: Interleaver;
}

async function openScene(racers: number): Promise<Scene> {
  const database = await testDatabase();
  const admin = await database.session();
  await admin.query("CREATE TABLE handled (position BIGINT NOT NULL, worker_id UUID NOT NULL)");
  await admin.query("INSERT INTO tidemill.worker_nodes (worker_id) VALUES ($1), ($2)", [OLD, NEXT]);
  for (const { position, id, type } of eventsAt(1, 2)) {
    await admin.query(
      `INSERT INTO tidemill.events (global_position, stream_type, stream_id, stream_version,
                                    event_id, event_type, payload)
       OVERRIDING SYSTEM VALUE VALUES ($1, 'Thing', '1', $1, $2, $3, '1')`,
      [String(position), id, type],
    );
  }
  const db = engineDatabase(database.url);
  const interleaver = await Interleaver.open(database, racers);
  return { admin, db, interleaver };
}

/** Nothing was handled, and the consumer is the old worker's. */
async function reset({ admin }: Scene): Promise<void> {
  await admin.query(
    `DELETE FROM handled; DELETE FROM tidemill.consumer_assignments;
     DELETE FROM tidemill.consumer_checkpoints;
     INSERT INTO tidemill.consumer_assignments (consumer_name, worker_id)
     VALUES ('${NAME}', '${OLD}');
     INSERT INTO tidemill.consumer_checkpoints (consumer_name, last_position)
     VALUES ('${NAME}', 0)`,
  );
}

/** A batch sends statements one behind the other; here each of them is a move. */
function oneByOne(racer: Racer, db: Database): Database {
  let last: Promise<unknown> = Promise.resolve();
  const query = (text: string, values?: unknown[]): Promise<unknown> => {
    const send = (): Promise<unknown> => racer.client.query(text, values);
    const sent = last.then(send, send);
    last = sent;
    return sent;
  };
  const client = new Proxy(racer.client, {
    get: (target, key): unknown => (key === "query" ? query : Reflect.get(target, key, target)),
  });
  const gated: Pick<Database, "over" | "withConnection"> = {
    over: (executor) => db.over(executor),
    withConnection: (work) => work(new Connection(client, db)),
  };
  return gated as Database;
}

/** From where the worker takes the consumer to be. */
async function batchOf(
  { db }: Scene,
  racer: Racer,
  workerId: string,
  { after = 0n, isAhead = false }: { after?: bigint; isAhead?: boolean } = {},
): Promise<BatchOutcome["kind"]> {
  if (VIEW === undefined) throw new Error("no partition");
  const context = {
    db: oneByOne(racer, db),
    workerId,
    partition: VIEW,
    parks: () => false,
    batchTimeoutMs: 30_000,
    clock: systemClock,
    hardStop: new AbortController().signal,
  };
  const events = eventsAt(1, 2).filter(({ position }) => position > after);
  const plan = { window: { after, target: LAST, events }, proof: undefined };
  return (await runBatch(context, isAhead ? Promise.resolve(plan) : plan)).kind;
}

/** Each event once, or none if nobody committed; by whom. */
async function readHandler({ admin }: Scene): Promise<string> {
  const { rows } = await admin.query<{ position: string; worker_id: string }>(
    "SELECT position, worker_id FROM handled ORDER BY position",
  );
  const { rows: checkpoints } = await admin.query<{ position: string }>(
    "SELECT last_position AS position FROM tidemill.consumer_checkpoints",
  );
  const [first] = rows;
  expect(rows.map(({ position }) => position)).toEqual(first === undefined ? [] : ["1", "2"]);
  expect(checkpoints).toEqual([{ position: String(rows.length) }]);
  if (first === undefined) return "nobody";
  return first.worker_id === OLD ? "old" : "next";
}

it("is committed once when its worker runs it again, as after an unanswered COMMIT", async () => {
  const scene = await openScene(2);
  const ends = await scene.interleaver.run({
    scripts: {
      first: (racer) => batchOf(scene, racer, OLD),
      again: (racer) => batchOf(scene, racer, OLD, { isAhead: true }),
    },
    reset: () => reset(scene),
    check: async (run) => {
      expect(await readHandler(scene)).toBe("old");
      const kinds = ["first", "again"].map(run.result<BatchOutcome["kind"]>);
      expect(kinds.toSorted()).toEqual(["committed", "drifted"]);
      return kinds.join(" ");
    },
  });
  expect(Object.keys(ends).sort()).toEqual(["committed drifted", "drifted committed"]);
});

describe("beside the move of its consumer", () => {
  const placeOf = (run: Run, move: string): number => run.moves.indexOf(move);

  /** Waits for the batch that has the consumer. */
  const moverOf = (term: bigint) => (racer: Racer) =>
    racer.transaction((tx) => {
      const change = { consumer: NAME, from: OLD, to: NEXT };
      return moveBusyAssignment(tx, { term, leaderId: NEXT }, change, 30_000);
    });

  it("is not committed once the move has been", async () => {
    const scene = await openScene(2);
    const mover = moverOf(await beginTerm(scene.db, NEXT));
    const ends = await scene.interleaver.run({
      scripts: { old: (racer) => batchOf(scene, racer, OLD), mover },
      reset: () => reset(scene),
      check: async (run) => {
        expect(run.result("mover")).toBe(true);
        const kind = run.result<BatchOutcome["kind"]>("old");
        expect(await readHandler(scene)).toBe(kind === "committed" ? "old" : "nobody");
        if (kind === "committed") {
          expect(placeOf(run, "old COMMIT")).toBeLessThan(placeOf(run, "mover COMMIT"));
        }
        return kind;
      },
    });
    expect(Object.keys(ends).sort()).toEqual(["committed", "lost"]);
  });

  it("is handled by the old owner or by the next one, never by both", async () => {
    const scene = await openScene(3);
    const mover = moverOf(await beginTerm(scene.db, NEXT));
    const next = async (racer: Racer): Promise<BatchOutcome["kind"] | undefined> => {
      const mine = await readAssignmentsOf(racer.connection, NEXT);
      if (!mine.includes(NAME)) return undefined;
      const { checkpoint = 0n } = (await readPartitionState(racer.connection, NAME)) ?? {};
      return checkpoint === LAST
        ? undefined
        : await batchOf(scene, racer, NEXT, { after: checkpoint });
    };
    const ends = await scene.interleaver.run({
      scripts: { old: (racer) => batchOf(scene, racer, OLD), mover, next },
      sample: { count: 150, seed: 4711 },
      reset: () => reset(scene),
      check: () => readHandler(scene),
    });
    expect(Object.keys(ends).sort()).toEqual(["next", "nobody", "old"]);
  });
});
