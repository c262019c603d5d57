import pg from "pg";
import { expect, it } from "vitest";
import type { Connection } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { renderStatement, type Statement } from "../../../src/db/statement.ts";
import { insertEvents, readStreamHead } from "../../../src/events/sql/append.ts";
import {
  readEventsAfter,
  readEventsOfStream,
  readLatestPosition,
} from "../../../src/events/sql/read.ts";
import { Tidemill } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";

const ROWS = 50_000;
const stream = { type: "Order", id: "17" };
const names = resolveNames();

interface Plan {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly Plans?: readonly Plan[];
}

interface Captured {
  readonly statement: Statement;
  readonly values: readonly unknown[];
}

/** The statement that a function of ours sends, taken from its hands. */
async function capture(run: (db: Connection) => Promise<unknown>): Promise<Captured> {
  const captured: Captured[] = [];
  const take = (statement: Statement, values: readonly unknown[] = []): Promise<never[]> => {
    captured.push({ statement, values });
    return Promise.resolve([]);
  };
  await run({ query: take, queryText: take } as unknown as Connection);
  const [only] = captured;
  if (only === undefined) throw new Error("no statement was sent");
  return only;
}

const event = JSON.stringify({
  ord: 1,
  id: "0197a3f0-0000-7000-8000-000000000001",
  type: "Step",
  version: 1,
  json: "{}",
});
const range = { fromVersion: 2n, toVersion: 2n ** 63n - 1n, countMax: 2 ** 31 - 1 };

const CASES: readonly [string, string, (db: Connection) => Promise<unknown>][] = [
  ["append", "heads", (db) => insertEvents(db, stream, { kind: "any" }, [event])],
  ["append", "heads", (db) => insertEvents(db, stream, { kind: "no-stream" }, [event])],
  ["append", "heads", (db) => insertEvents(db, stream, { kind: "exact", version: 9n }, [event])],
  ["head", "heads", (db) => readStreamHead(db, stream)],
  ["window", "position", (db) => readEventsAfter(db, 25_000n, 1_000)],
  ["stream", "stream", (db) => readEventsOfStream(db, stream, range)],
  ["latest", "position", (db) => readLatestPosition(db)],
];

function flatten(plan: Plan): Plan[] {
  return [plan, ...(plan.Plans ?? []).flatMap(flatten)];
}

/** As the server plans it when it knows the values, and when it keeps one plan for all values. */
async function plansOf(client: pg.Client, { statement, values }: Captured): Promise<Plan[][]> {
  const text = renderStatement(statement, names);
  await client.query(`PREPARE one AS ${text}`);
  const list = values.map((value) => pg.escapeLiteral(String(value))).join(", ");
  const call = list === "" ? "one" : `one(${list})`;
  const plans: Plan[][] = [];
  for (const mode of ["force_custom_plan", "force_generic_plan"]) {
    await client.query(`SET plan_cache_mode = ${mode}`);
    const { rows } = await client.query<{ "QUERY PLAN": { Plan: Plan }[] }>(
      `EXPLAIN (FORMAT JSON) EXECUTE ${call}`,
    );
    plans.push(rows[0]?.["QUERY PLAN"].flatMap((one) => flatten(one.Plan)) ?? []);
  }
  await client.query("DEALLOCATE one");
  return plans;
}

it.each(["none", "native"] as const)(
  "reads and appends by index among 50,000 events, with partitioning %s",
  async (strategy) => {
    const database = await testDatabase({ migrated: false });
    const partitioning = { strategy, size: 10_000, ahead: 6 };
    await Tidemill.migrate(database.url, { partitioning });
    const client = await database.session();
    await client.query(
      `INSERT INTO tidemill.events
              (stream_type, stream_id, stream_version, event_id, event_type, payload)
       SELECT 'Order', n % 5000, n / 5000 + 1, gen_random_uuid(), 'Step', '{}'
         FROM generate_series(0, ${ROWS - 1}) AS n`,
    );
    await client.query(
      `INSERT INTO tidemill.stream_heads (stream_type, stream_id, stream_version)
       SELECT 'Order', n, 10 FROM generate_series(0, 4999) AS n`,
    );
    await client.query("ANALYZE tidemill.events, tidemill.stream_heads");

    for (const [kind, by, run] of CASES) {
      const captured = await capture(run);
      for (const plan of await plansOf(client, captured)) {
        const seen = `${captured.statement.name}: ${plan.map((one) => one["Node Type"]).join(" ")}`;
        // Nothing is read in a partition that is empty, by whichever plan.
        const whole = plan.filter(
          (one) =>
            one["Node Type"] === "Seq Scan" &&
            /^(events|stream_heads)/.test(one["Relation Name"] ?? "") &&
            !one["Relation Name"]?.startsWith("events_p0000050001"),
        );
        expect(whole, seen).toEqual([]);
        const indexes = plan.flatMap((one) => one["Index Name"] ?? []);
        if (by === "position") expect(indexes, seen).toContainEqual(expect.stringMatching(/pkey$/));
        if (by === "stream") expect(indexes, seen).toContainEqual(expect.stringMatching(/stream/));
        // What was given to an append, and one stream from several partitions, may be sorted.
        const sorted = plan.filter((one) => one["Node Type"].includes("Sort"));
        if (kind === "append") {
          expect(sorted.flatMap(flatten).flatMap((one) => one["Relation Name"] ?? [])).toEqual([]);
        } else if (by !== "stream" || strategy === "none") {
          expect(sorted, seen).toEqual([]);
        }
      }
    }
  },
);
