import type pg from "pg";
import { expect, it } from "vitest";
import type { Queryable } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { renderStatement, type Statement } from "../../../src/db/statement.ts";
import { claimDeliveries, forgetDeliveries } from "../../../src/delivery/sql/deliveries.ts";
import { testDatabase } from "../../support/database.ts";

const NAMES = resolveNames();
const CLAIM = "00000000-0000-4000-8000-0000000000aa";

interface PlanNode {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly "Rows Removed by Filter"?: number;
  readonly Plans?: readonly PlanNode[];
}

/** What a statement read of the deliveries: every node, and how many rows in all. */
class Explainer implements Queryable {
  readonly scans: PlanNode[] = [];
  readonly #client: pg.Client;

  constructor(client: pg.Client) {
    this.#client = client;
  }

  async query<Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    const text = renderStatement(statement, NAMES);
    await this.#client.query("BEGIN");
    const { rows } = await this.#client.query<{ "QUERY PLAN": [{ Plan: PlanNode }] }>(
      `EXPLAIN (ANALYZE, FORMAT JSON) ${text}`,
      [...values],
    );
    await this.#client.query("ROLLBACK");
    const [row] = rows;
    if (row !== undefined) this.#collect(row["QUERY PLAN"][0].Plan);
    return [];
  }

  #collect(node: PlanNode): void {
    if (node["Node Type"].includes("Scan") && node["Relation Name"] === "webhook_deliveries") {
      this.scans.push(node);
    }
    for (const one of node.Plans ?? []) this.#collect(one);
  }

  get rowsRead(): number {
    return this.scans.reduce((sum, node) => {
      const each = node["Actual Rows"] + (node["Rows Removed by Filter"] ?? 0);
      return sum + each * node["Actual Loops"];
    }, 0);
  }
}

it("a look costs what it has lanes for, however much waits or has ended", async () => {
  const database = await testDatabase();
  // Of one slow receiver 20,000, of each of 300 others one that waits for a retry; 20,000 ended.
  await database.pool.query(
    `INSERT INTO tidemill.webhook_deliveries
            (tenant, endpoint, lane, task_id, type, at, task, state, next_at, ended_at)
     SELECT 'default', 'e', CASE WHEN n <= 300 THEN 'lane ' || n ELSE 'slow' END, n,
            'task.completed', NOW(), '{}',
            CASE WHEN n > 20300 THEN 'delivered' ELSE 'pending' END,
            NOW() + CASE WHEN n <= 300 THEN INTERVAL '1 hour' ELSE INTERVAL '-1 hour' END,
            CASE WHEN n > 20300 THEN NOW() END
       FROM generate_series(1, 40300) AS n`,
  );
  await database.pool.query("ANALYZE tidemill.webhook_deliveries");
  const client = await database.session();
  const claim = {
    claimId: CLAIM,
    leaseSeconds: 45,
    afterLane: "",
    lanesMax: 500,
    room: 60,
    limits: { total: 64, lane: 4, tenant: 32 },
    tenants: [["default", 4]],
  } as const;

  const full = new Explainer(client);
  await claimDeliveries(full, { ...claim, lanes: [["slow", 4]] });
  expect(full.rowsRead).toBeLessThan(350);
  const open = new Explainer(client);
  await claimDeliveries(open, { ...claim, lanes: [["slow", 1]] });
  expect(open.rowsRead).toBeLessThan(350);
  const retention = new Explainer(client);
  await forgetDeliveries(retention, 7, 10_000);
  expect(retention.rowsRead).toBe(0);
  for (const node of [...full.scans, ...open.scans, ...retention.scans]) {
    expect(node["Node Type"]).not.toBe("Seq Scan");
  }
});
