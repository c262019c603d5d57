import { chmod, mkdir, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { wallClockStamp } from "../base/clock.ts";
import { ConfigError, ConflictError, InvalidInputError, messageOf } from "../base/errors.ts";
import { refuseUnknown, withoutUndefined } from "../base/options.ts";
import { VERSION } from "../base/version.ts";
import {
  bootstrapSql,
  loadMigrations,
  type Partitioning,
  type PartitioningOptions,
  resolvePartitioning,
} from "./migrations.ts";
import { type ColumnFamily, type Names, type NamesOptions, resolveNames } from "./names.ts";
import { GUARD, HEADER, quoteLiteral, RECORD_MIGRATION, RECORD_SETTING } from "./sql/generated.ts";
import { splice } from "./statement.ts";

/** Tables are named as `table` or `schema.table`. */
export interface GenerateMigrationsOptions {
  /** Made when missing. Defaults to "migrations". */
  readonly outputFolder?: string;
  /** Defaults to the present time in UTC, as in "20260131235959_init_tidemill.sql". */
  readonly outputFilename?: string;
  /** Replaces a file of that name. Defaults to false. */
  readonly force?: boolean;
  /** Schema of every table without one of its own. Defaults to "tidemill". */
  readonly schema?: string;
  /** Defaults to "stream". */
  readonly columnFamily?: ColumnFamily;
  /** Defaults to "events". */
  readonly eventsTable?: string;
  /** Defaults to "stream_heads" ("aggregate_heads" with the aggregate column family). */
  readonly streamHeadsTable?: string;
  /** Defaults to "worker_nodes". */
  readonly workerNodesTable?: string;
  /** Defaults to "consumer_assignments". */
  readonly consumerAssignmentsTable?: string;
  /** Defaults to "consumer_checkpoints". */
  readonly consumerCheckpointsTable?: string;
  /** Defaults to "consumer_gap_skips". */
  readonly consumerGapSkipsTable?: string;
  /** Defaults to "worker_leader_election". */
  readonly leaderElectionTable?: string;
  /** "native" splits the log into ranges of positions. Defaults to "none". */
  readonly partitionStrategy?: "none" | "native";
  /** Positions per partition. Defaults to 10,000,000. */
  readonly partitionSize?: number;
  /** Partitions kept ahead of the last position. Defaults to 4. */
  readonly initialPartitions?: number;
}

export interface GeneratedMigrations {
  readonly path: string;
  readonly sql: string;
}

const OPTIONS = [
  "outputFolder",
  "outputFilename",
  "force",
  "schema",
  "columnFamily",
  "eventsTable",
  "streamHeadsTable",
  "workerNodesTable",
  "consumerAssignmentsTable",
  "consumerCheckpointsTable",
  "consumerGapSkipsTable",
  "leaderElectionTable",
  "partitionStrategy",
  "partitionSize",
  "initialPartitions",
];

/**
 * Writes one SQL file with everything that `Tidemill.migrate` would apply to an empty database, for
 * teams that apply migrations with a tool of their own. Connects to nothing. A file of the same
 * name is kept unless `force` is set.
 */
export async function generateMigrations(
  options: GenerateMigrationsOptions = {},
): Promise<GeneratedMigrations> {
  const { outputFolder = "migrations", force = false } = options;
  const sql = renderMigrations(options);
  const path = join(outputFolder, checkFilename(options.outputFilename ?? defaultFilename()));
  try {
    await mkdir(outputFolder, { recursive: true, mode: 0o755 });
    await writeFile(path, sql, { mode: 0o600, flag: force ? "w" : "wx" });
    await chmod(path, 0o600); // A replaced file kept its own mode.
  } catch (error) {
    if (Reflect.get(Object(error), "code") === "EEXIST" && !force) {
      throw new ConflictError(
        `${path} exists and was kept; name another file, or replace it with force (--force)`,
        {
          cause: error,
        },
      );
    }
    throw new InvalidInputError(`cannot write ${path}: ${messageOf(error)}`, { cause: error });
  }
  return { path, sql };
}

/** The text of the file, without a file. */
export function renderMigrations(options: GenerateMigrationsOptions = {}): string {
  refuseUnknown("generateMigrations", options, OPTIONS);
  const names = resolveNames(namesOf(options));
  const partitioning = resolvePartitioning(partitioningOf(options));
  const migrations = loadMigrations(names, partitioning).map(
    ({ version, name, checksum, sql }) =>
      `-- Migration ${version}: ${name}\n${sql.trimEnd()}\n` +
      splice(RECORD_MIGRATION, {
        ...names.splices,
        version: String(version),
        name: quoteLiteral(name),
        checksum: quoteLiteral(checksum),
      }),
  );
  return [
    splice(HEADER, { version: VERSION }),
    splice(GUARD, names.splices),
    `${bootstrapSql(names)}\n`,
    ...migrations,
    ...settingsSql(names, partitioning),
  ].join("");
}

function settingsSql(names: Names, partitioning: Partitioning): string[] {
  const settings = { names: names.fingerprint, partitioning: JSON.stringify(partitioning) };
  return Object.entries(settings).map(([key, value]) =>
    splice(RECORD_SETTING, {
      ...names.splices,
      key: quoteLiteral(key),
      value: quoteLiteral(value),
    }),
  );
}

function namesOf(options: GenerateMigrationsOptions): NamesOptions {
  const tables = withoutUndefined({
    events: options.eventsTable,
    streamHeads: options.streamHeadsTable,
    workerNodes: options.workerNodesTable,
    consumerAssignments: options.consumerAssignmentsTable,
    consumerCheckpoints: options.consumerCheckpointsTable,
    consumerGapSkips: options.consumerGapSkipsTable,
    workerLeaderElection: options.leaderElectionTable,
  }) as NonNullable<NamesOptions["tables"]>;
  const { schema, columnFamily } = options;
  return { ...(withoutUndefined({ schema, columnFamily }) as NamesOptions), tables };
}

function partitioningOf(options: GenerateMigrationsOptions): PartitioningOptions {
  return withoutUndefined({
    strategy: options.partitionStrategy,
    size: options.partitionSize,
    ahead: options.initialPartitions,
  });
}

function checkFilename(name: string): string {
  if (name === "" || name === "." || name === ".." || basename(name) !== name) {
    throw new ConfigError(
      `${JSON.stringify(name)} is not a file name; give the folder with outputFolder`,
    );
  }
  return name;
}

function defaultFilename(): string {
  return `${wallClockStamp()}_init_tidemill.sql`;
}
