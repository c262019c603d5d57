import type pg from "pg";
import { expect, it } from "vitest";
import type { Queryable } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { shapePlans } from "../../../src/db/sql/session.ts";
import { renderStatement, type Statement } from "../../../src/db/statement.ts";
import { lookForWork } from "../../../src/delivery/notices/sql/work.ts";
import { testDatabase } from "../../support/database.ts";

const NAMES = resolveNames();

interface PlanNode {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly "Rows Removed by Filter"?: number;
  readonly Plans?: readonly PlanNode[];
}

/** What a statement read of the tables of tasks. */
class Explainer implements Queryable {
  readonly scans: PlanNode[] = [];
  readonly #client: pg.Client;

  constructor(client: pg.Client) {
    this.#client = client;
  }

  async query<Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    const text = renderStatement(statement, NAMES);
    const { rows } = await this.#client.query<{ "QUERY PLAN": [{ Plan: PlanNode }] }>(
      `EXPLAIN (ANALYZE, FORMAT JSON) ${text}`,
      [...values],
    );
    const [row] = rows;
    if (row !== undefined) this.#collect(row["QUERY PLAN"][0].Plan);
    return [];
  }

  #collect(node: PlanNode): void {
    const isHot = ["tasks", "task_packs"].includes(node["Relation Name"] ?? "");
    if (node["Node Type"].includes("Scan") && isHot) this.scans.push(node);
    for (const one of node.Plans ?? []) this.#collect(one);
  }

  get rowsRead(): number {
    return this.scans.reduce((sum, node) => {
      const each = node["Actual Rows"] + (node["Rows Removed by Filter"] ?? 0);
      return sum + each * node["Actual Loops"];
    }, 0);
  }
}

it("a look reads a few rows of the queues that somebody named, and none of others", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  for (const name of ["mails", "deep", "keyed"]) await mill.queues.ensure(name);
  // Of a queue that nobody named 20,000, of one that somebody did as many, in rows and with keys.
  for (const name of ["mails", "deep", "keyed"]) {
    await mill.enqueue(name, 1, name === "keyed" ? { partitionKey: "k" } : {});
    await database.pool.query(
      `INSERT INTO tidemill.tasks
              (id, claim_order, lane, max_attempts, priority, state, tenant, queue, payload,
               partition_key, partition_bucket)
       SELECT number, number, task.lane, 1, 5, 'pending', task.tenant, task.queue, '1',
              task.partition_key, task.partition_bucket
         FROM tidemill.tasks AS task,
              LATERAL (SELECT nextval('tidemill.task_numbers') AS number, task.id
                         FROM generate_series(1, 20000)) AS more
        WHERE task.queue = $1`,
      [name],
    );
  }
  await database.pool.query("ANALYZE tidemill.tasks");
  const client = await database.session();
  const explain = async (queues: readonly string[], floor = 0): Promise<Explainer> => {
    const explainer = new Explainer(client);
    const places = queues.map((queue) => ({ tenant: "default", queue, floor }));
    await lookForWork(explainer, places, 100);
    for (const node of explainer.scans) expect(node["Node Type"]).not.toBe("Seq Scan");
    return explainer;
  };
  await shapePlans({
    query: async (statement) => {
      await client.query(renderStatement(statement, NAMES));
      return [];
    },
  });
  expect((await explain(["deep"])).rowsRead).toBeLessThanOrEqual(100);
  expect((await explain(["keyed"])).rowsRead).toBeLessThanOrEqual(200);
  expect((await explain(["nobody's", "mails"])).rowsRead).toBeLessThanOrEqual(100);
  expect((await explain(["deep"], 1_000_000)).rowsRead).toBe(0);
  expect((await explain([])).rowsRead).toBe(0);
});
