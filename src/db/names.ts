import { ConfigError } from "../base/errors.ts";
import {
  derivedName,
  fnv1a,
  parseTableName,
  quoteIdentifier,
  quoteTable,
  type TableName,
} from "../base/identifier.ts";
import { refuseUnknown, requireOneOf, withoutUndefined } from "../base/options.ts";

/** Tables that existed in the source systems: each may be renamed and put in another schema. */
export interface TableOptions {
  /** Defaults to "events". */
  readonly events?: string;
  /** Defaults to "stream_heads" ("aggregate_heads" with the aggregate column family). */
  readonly streamHeads?: string;
  /** Defaults to "worker_nodes". */
  readonly workerNodes?: string;
  /** Defaults to "consumer_assignments". */
  readonly consumerAssignments?: string;
  /** Defaults to "consumer_checkpoints". */
  readonly consumerCheckpoints?: string;
  /** Defaults to "consumer_gap_skips". */
  readonly consumerGapSkips?: string;
  /** Defaults to "worker_leader_election". */
  readonly workerLeaderElection?: string;
}

/** How the columns that identify a stream are spelled: eventsalsa/store renamed them in v0.1.0. */
export type ColumnFamily = "stream" | "aggregate";

export interface NamesOptions {
  /**
   * Schema of every table without a schema of its own, and of the tables only we have.
   *
   * Defaults to "tidemill".
   */
  readonly schema?: string;
  readonly tables?: TableOptions;
  /** Defaults to "stream". */
  readonly columnFamily?: ColumnFamily;
}

/** Every name that SQL text may splice, validated and quoted once. */
export interface Names {
  readonly schema: string;
  readonly tables: Readonly<Record<keyof TableOptions, TableName>>;
  readonly columnFamily: ColumnFamily;
  /** `{word}` in SQL text becomes `splices.word`. */
  readonly splices: Readonly<Record<string, string>>;
  /** Tells clusters apart: different tables, different text. */
  readonly fingerprint: string;
}

const TABLE_DEFAULTS: Readonly<Record<keyof TableOptions, string>> = {
  events: "events",
  streamHeads: "stream_heads",
  workerNodes: "worker_nodes",
  consumerAssignments: "consumer_assignments",
  consumerCheckpoints: "consumer_checkpoints",
  consumerGapSkips: "consumer_gap_skips",
  workerLeaderElection: "worker_leader_election",
};

export function resolveNames(options: NamesOptions = {}): Names {
  refuseUnknown("names", options, ["schema", "tables", "columnFamily"]);
  const schema = options.schema ?? "tidemill";
  quoteIdentifier(schema);
  const columnFamily = requireOneOf("columnFamily", options.columnFamily ?? "stream", [
    "stream",
    "aggregate",
  ]);
  const given = withoutUndefined(options.tables ?? {});
  refuseUnknown("tables", given, Object.keys(TABLE_DEFAULTS));
  const tables = Object.fromEntries(
    Object.entries(TABLE_DEFAULTS).map(([key, name]) => {
      const chosen = given[key as keyof TableOptions];
      const fallback =
        key === "streamHeads" && columnFamily === "aggregate" ? "aggregate_heads" : name;
      return [key, parseTableName(chosen ?? fallback, schema)];
    }),
  ) as Record<keyof TableOptions, TableName>;
  refuseSharedTables(tables, schema);
  const quoted = Object.values(tables).map(quoteTable);
  const fingerprint = [schema, columnFamily, ...quoted].join(" ");
  return {
    schema,
    tables,
    columnFamily,
    splices: {
      ...makeSplices(schema, tables, columnFamily),
      changes_channel: `tidemill_changes_${fnv1a(fingerprint).toString(36)}`,
    },
    fingerprint,
  };
}

/** Tables that only we have, always in `schema`. */
const OWN_TABLES = [
  "api_keys",
  "audit_log",
  "bucket_owners",
  "cluster_changes",
  "consumer_holds",
  "consumer_partitions",
  "consumer_rebuilds",
  "consumer_states",
  "consumer_tables",
  "crash_marker",
  "dead_letters",
  "event_keys",
  "feed_changes",
  "feed_era",
  "frontier_fence",
  "gap_evidence",
  "kafka_dead_messages",
  "kafka_offsets",
  "kafka_refused_messages",
  "key_holds",
  "key_spaces",
  "leader_term",
  "limit_grants",
  "limit_slots",
  "limit_starts",
  "migrations",
  "operator_actions",
  "parked_events",
  "parked_streams",
  "queues",
  "schedule_firings",
  "schedules",
  "settings",
  "subscription_turns",
  "subscriptions",
  "task_claims",
  "task_depths",
  "task_ends",
  "task_failures",
  "task_history",
  "task_idempotency",
  "task_lanes",
  "task_packs",
  "task_publications",
  "task_tally",
  "tasks",
  "tenant_grants",
  "tenant_quotas",
  "topic_policies",
  "webhook_attempts",
  "webhook_deliveries",
  "webhook_endpoints",
  "worker_info",
  "worker_tenants",
];

function refuseSharedTables(tables: Readonly<Record<string, TableName>>, schema: string): void {
  const seen = new Map<string, string>();
  for (const [key, name] of Object.entries(tables)) {
    if (name.schema === schema && OWN_TABLES.includes(name.table)) {
      throw new ConfigError(
        `tables.${key}: ${quoteTable(name)} is a table of tidemill's own; use another name`,
      );
    }
    const other = seen.get(quoteTable(name));
    if (other !== undefined) {
      throw new ConfigError(`tables.${key} and tables.${other} are both ${quoteTable(name)}`);
    }
    seen.set(quoteTable(name), key);
  }
}

function makeSplices(
  schema: string,
  tables: Readonly<Record<keyof TableOptions, TableName>>,
  family: ColumnFamily,
): Record<string, string> {
  const index = (table: TableName, suffix: string): string =>
    quoteIdentifier(derivedName("idx_", table.table, suffix));
  const { events, workerNodes, consumerAssignments, consumerGapSkips } = tables;
  const sequence = derivedName("", events.table, "_global_position_seq");
  return {
    schema: quoteIdentifier(schema),
    events: quoteTable(events),
    events_schema: events.schema,
    events_table: events.table,
    events_sequence: quoteTable({ schema: events.schema, table: sequence }),
    events_stream_idx: index(events, "_stream"),
    events_event_type_idx: index(events, "_event_type"),
    events_correlation_idx: index(events, "_correlation"),
    stream_heads: quoteTable(tables.streamHeads),
    stream_type: `${family}_type`,
    stream_id: `${family}_id`,
    stream_version: `${family}_version`,
    worker_nodes: quoteTable(workerNodes),
    worker_nodes_heartbeat_idx: index(workerNodes, "_heartbeat"),
    consumer_assignments: quoteTable(consumerAssignments),
    consumer_assignments_worker_idx: index(consumerAssignments, "_worker"),
    consumer_checkpoints: quoteTable(tables.consumerCheckpoints),
    consumer_gap_skips: quoteTable(consumerGapSkips),
    consumer_gap_skips_consumer_idx: index(consumerGapSkips, "_consumer"),
    worker_leader_election: quoteTable(tables.workerLeaderElection),
    tasks_channel: derivedName("", schema, "_tasks"),
  };
}
