import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import {
  completed,
  failed,
  type Logger,
  type QueueOptions,
  queue,
  Tidemill,
} from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type PgBouncer, startPgBouncer, whyNoPgBouncer } from "../../support/pgbouncer.ts";
import { readFailures } from "../../support/task-runs.ts";
import { BRISK, gate, range, readColumn } from "./scene.ts";

/*
 * One row of a batch may be refused by the server for what is in it. The whole statement fails with
 * it, and would fail again.
 */

const missing = whyNoPgBouncer();
let pooler: PgBouncer | undefined;

beforeAll(async () => {
  if (missing === undefined) pooler = await startPgBouncer(inject("databaseUrl"));
});

afterAll(async () => {
  await pooler?.stop();
});

const COUNT = 40;
const OFFENDER = 17;

interface Said {
  readonly task?: string;
  readonly error?: string;
  readonly message: string;
  readonly atMs: number;
}

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  /** Warnings of the worker. */
  readonly warnings: Said[];
  readonly ids: readonly string[];
  readonly offender: string;
}

interface Plan {
  /** Makes the server refuse what is written of the offender. */
  readonly refuse: string;
  readonly fails?: boolean;
  readonly isPooled?: boolean;
  readonly options?: QueueOptions;
}

/** Many tasks that end in one moment, of which the server refuses one. */
async function endAtOnce({ refuse, fails = false, isPooled, options }: Plan): Promise<Scene> {
  const database = await testDatabase();
  await database.pool.query(refuse);
  const warnings: Said[] = [];
  const mill = await connect(database, isPooled === true);
  const all = gate();
  let started = 0;
  const orders = queue<number>("orders", {
    backoff: { kind: "fixed", baseSeconds: 600 },
    ...options,
  });
  const handler = orders.handle(async ({ payload }) => {
    started += 1;
    if (started === COUNT) all.open();
    await all.opened;
    const word = payload === OFFENDER ? "unspeakable" : "well";
    return fails ? failed(word) : completed(word);
  });
  const how = isPooled ? ({ dispatcherStrategy: "poll", leaderStrategy: "lease" } as const) : {};
  const payloads = range(COUNT).map((payload) => ({ payload }));
  const ids = (await mill.enqueueMany(orders, payloads)).map(({ id }) => id);
  await mill.startWorker({
    ...BRISK,
    ...how,
    handlers: [handler],
    concurrency: COUNT,
    logger: recorder(warnings),
  });
  return { database, mill, warnings, ids, offender: ids[OFFENDER] ?? "" };
}

async function connect(database: TestDatabase, isPooled: boolean): Promise<Tidemill> {
  if (!isPooled) return await database.connect();
  if (pooler === undefined) throw new Error("no pooler");
  const mill = await Tidemill.connect(pooler.through(database.url));
  onCleanup(() => mill.close());
  return mill;
}

function recorder(warnings: Said[]): Logger {
  const ignore = (): void => {};
  return {
    debug: ignore,
    info: ignore,
    error: ignore,
    warn: (fields, message) => warnings.push({ ...fields, message, atMs: performance.now() }),
  };
}

const refusals = ({ warnings, offender }: Scene): Said[] =>
  warnings.filter(({ task, message }) => task === offender && message.includes("refused"));

async function expectOthersCompleted({ database, ids, offender }: Scene): Promise<void> {
  await eventually(async () => {
    const done = await readColumn<string>(
      database,
      "SELECT id FROM tidemill.task_history WHERE state = 'completed' ORDER BY id",
    );
    expect(done).toEqual(ids.filter((id) => id !== offender));
  });
}

const RESULT = `ALTER TABLE tidemill.task_history
                  ADD CONSTRAINT speakable CHECK (result <> '"unspeakable"')`;
const REASON = `ALTER TABLE tidemill.task_failures
                  ADD CONSTRAINT speakable CHECK (reason <> 'unspeakable')`;
/** Refused when the transaction commits, not by the statement. */
const LATE = `
  CREATE FUNCTION speakable() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF new.result = '"unspeakable"' THEN RAISE EXCEPTION 'not speakable'; END IF;
    RETURN NULL;
  END $$;
  CREATE CONSTRAINT TRIGGER speakable AFTER INSERT ON tidemill.task_history
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION speakable()`;

describe("an end that the server refuses", () => {
  it.for([
    ["directly, by a constraint", RESULT, false],
    ["directly, as it commits", LATE, false],
    ["through PgBouncer, by a constraint", RESULT, true],
    ["through PgBouncer, as it commits", LATE, true],
  ] as const)(
    "is a failure of its attempt, and the others complete (%s)",
    async ([, refuse, isPooled], { skip }) => {
      if (isPooled && missing !== undefined) skip(missing);
      const one = await endAtOnce({ refuse, isPooled });
      await expectOthersCompleted(one);
      await eventually(async () =>
        expect(await one.mill.tasks.get(one.offender)).toMatchObject({ state: "scheduled" }),
      );
      expect(await readFailures(one.database.pool)).toMatchObject([
        {
          attempt: 1,
          outcome: "failed",
          reason: expect.stringMatching(/the database refused.*speakable/),
        },
      ]);
      expect(refusals(one)).toMatchObject([{ error: expect.stringContaining("speakable") }]);
    },
  );

  it("is the end of the task when it was its last attempt", async () => {
    const one = await endAtOnce({ refuse: RESULT, options: { maxAttempts: 1 } });
    await expectOthersCompleted(one);
    await eventually(async () =>
      expect(await one.mill.deadLetters.list()).toMatchObject([
        { id: one.offender, cause: "attempts_exhausted", reason: expect.stringMatching(/refused/) },
      ]),
    );
  });

  it("is recorded with the server's words when the handler's own were refused", async () => {
    const one = await endAtOnce({ refuse: REASON, fails: true });
    await eventually(async () => {
      const failures = await readColumn<string>(
        one.database,
        "SELECT reason FROM tidemill.task_failures ORDER BY task_id",
      );
      const wanted = range(COUNT).map((n) =>
        n === OFFENDER ? expect.stringMatching(/the database refused.*speakable/) : "well",
      );
      expect(failures).toEqual(wanted);
    });
    expect((await one.mill.tasks.list({ state: "scheduled" })).length).toBe(COUNT);
  });

  it("rests when nothing can be written of it, until something can", async () => {
    const never = "ALTER TABLE tidemill.task_failures ADD CONSTRAINT never CHECK (reason = '')";
    const one = await endAtOnce({ refuse: `${RESULT}; ${never}` });
    await expectOthersCompleted(one);
    const said = await eventually(() => {
      expect(refusals(one).length).toBeGreaterThanOrEqual(4);
      return refusals(one);
    });
    // The completion, and the failure that was to be recorded instead; then it rests.
    const [, second, third, fourth] = said.map(({ atMs }) => atMs);
    expect((third ?? 0) - (second ?? 0)).toBeGreaterThan(900);
    expect((fourth ?? 0) - (third ?? 0)).toBeGreaterThan(1_800);
    expect(await one.mill.tasks.get(one.offender)).toMatchObject({ state: "running" });
    await one.database.pool.query("ALTER TABLE tidemill.task_failures DROP CONSTRAINT never");
    await eventually(async () =>
      expect(await one.mill.tasks.get(one.offender)).toMatchObject({ state: "scheduled" }),
    );
  });
});
