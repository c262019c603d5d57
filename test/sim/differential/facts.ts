import type pg from "pg";
import type { SimServer } from "../server.ts";
import type { Table } from "../store.ts";

/** What the tables hold, as lines that do not tell when; the same on both sides. */
export type Facts = Readonly<Record<string, readonly string[]>>;

const line = (values: readonly unknown[]): string => JSON.stringify(values);

export function simFacts({ server, tables }: SimServer): Facts {
  const all = <T>(table: Table<T>, values: (row: T) => unknown[]): string[] =>
    server.store
      .committed(table)
      .map((row) => line(values(row)))
      .sort();
  return {
    tasks: all(tables.tasks, (task) => [
      task.id,
      task.claimOrder,
      task.lane,
      task.state,
      task.attempt,
      task.generation,
      task.claimId,
      task.leasedBy,
      task.losses,
      task.onProbation,
      task.leaseUntil !== null,
    ]),
    claims: all(tables.claims, (claim) => [
      claim.claimId,
      claim.workerId,
      claim.taskIds.toSorted((a, b) => a - b),
      claim.keyLanes === null ? null : claim.keyLanes.toSorted((a, b) => a - b),
    ]),
    ends: all(tables.ends, (end) => [end.taskId, end.state, end.claimId, end.generation]),
    holds: all(tables.holds, (hold) => [hold.partitionKey, hold.why, hold.lane, hold.taskId]),
    owners: all(tables.owners, ({ workerId, epoch, buckets }) => [workerId, epoch, buckets]),
    terms: all(tables.terms, ({ term, leaderId }) => [term, leaderId]),
    leases: all(tables.leases, ({ leaderId }) => [leaderId]),
    nodes: all(tables.nodes, ({ workerId }) => [workerId]),
    infos: all(tables.infos, ({ workerId, status }) => [workerId, status]),
    assignments: all(tables.assignments, (row) => [row.consumerName, row.workerId]),
    changes: all(tables.changes, ({ version }) => [version]),
    numbers: [line([server.store.lastNumber])],
  };
}

const sorted = (column: string): string =>
  `(SELECT array_agg(one ORDER BY one) FROM unnest(${column}) AS one)`;

const QUERIES: Readonly<Record<string, string>> = {
  tasks: `SELECT id, claim_order, lane, state, attempt, lease_generation, claim_id, leased_by,
                 losses, on_probation, lease_until IS NOT NULL FROM tidemill.tasks`,
  claims: `SELECT claim_id, worker_id, COALESCE(${sorted("task_ids")}, '{}'),
                  CASE WHEN key_lanes IS NOT NULL THEN COALESCE(${sorted("key_lanes")}, '{}') END
             FROM tidemill.task_claims`,
  ends: `SELECT id, state, claim_id, lease_generation FROM tidemill.task_history
          UNION ALL
         SELECT id, 'dead', claim_id, lease_generation FROM tidemill.dead_letters`,
  holds: "SELECT partition_key, why, lane, task_id FROM tidemill.key_holds",
  owners: "SELECT worker_id, epoch, buckets FROM tidemill.bucket_owners",
  terms: "SELECT term, leader_id FROM tidemill.leader_term",
  leases: "SELECT leader_id FROM tidemill.worker_leader_election",
  nodes: "SELECT worker_id FROM tidemill.worker_nodes",
  infos: "SELECT worker_id, status FROM tidemill.worker_info",
  assignments: "SELECT consumer_name, worker_id FROM tidemill.consumer_assignments",
  changes: "SELECT version FROM tidemill.cluster_changes",
  numbers: "SELECT last_value FROM tidemill.task_numbers",
};

const FACTS_SQL = Object.entries(QUERIES)
  .map(
    ([name, query]) =>
      `SELECT '${name}' AS name, COALESCE(json_agg(to_json(one)), '[]') AS rows
         FROM (${query}) AS one`,
  )
  .join("\nUNION ALL\n");

export async function postgresFacts(admin: pg.Client): Promise<Facts> {
  const { rows } = await admin.query<{ name: string; rows: Record<string, unknown>[] }>(FACTS_SQL);
  return Object.fromEntries(
    rows.map(({ name, rows: found }) => [
      name,
      found.map((row) => line(Object.values(row))).sort(),
    ]),
  );
}
