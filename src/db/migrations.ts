import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { ConfigError } from "../base/errors.ts";
import { quoteIdentifier } from "../base/identifier.ts";
import { refuseUnknown, requireNumber, requireOneOf } from "../base/options.ts";
import type { Names } from "./names.ts";
import { BOOTSTRAP, createSchema } from "./sql/migrations.ts";
import { splice } from "./statement.ts";

const FOLDER = fileURLToPath(new URL("../../sql/migrations/", import.meta.url));

/** How the event log is laid out. Chosen at the first migration and kept. */
export interface PartitioningOptions {
  /** "native" splits the log into ranges of positions. Defaults to "none". */
  readonly strategy?: "none" | "native";
  /** Positions per partition. Defaults to 10,000,000. */
  readonly size?: number;
  /** Partitions kept ahead of the last position. Defaults to 4. */
  readonly ahead?: number;
}

export interface Partitioning {
  readonly strategy: "none" | "native";
  readonly size: number;
  readonly ahead: number;
}

export function resolvePartitioning(options: PartitioningOptions = {}): Partitioning {
  refuseUnknown("partitioning", options, ["strategy", "size", "ahead"]);
  return {
    strategy: requireOneOf("partitioning.strategy", options.strategy ?? "none", ["none", "native"]),
    size: requireNumber("partitioning.size", options.size ?? 10_000_000, { min: 1, integer: true }),
    ahead: requireNumber("partitioning.ahead", options.ahead ?? 4, { min: 1, integer: true }),
  };
}

export interface Migration {
  readonly version: number;
  readonly name: string;
  /** Of the file as released, so that custom names do not look like an edit. */
  readonly checksum: string;
  /** With names filled in, ready to run. */
  readonly sql: string;
}

/** Schemas that must exist, each once, for the configured names. */
export function schemaStatements(names: Names): string {
  const schemas = new Set([names.schema, ...Object.values(names.tables).map((t) => t.schema)]);
  return [...schemas].map((schema) => createSchema(quoteIdentifier(schema))).join("");
}

export function bootstrapSql(names: Names): string {
  return schemaStatements(names) + splice(BOOTSTRAP, names.splices);
}

/** Every migration of this version, in order. Forward only. */
export function loadMigrations(names: Names, partitioning: Partitioning): Migration[] {
  const splices = {
    ...names.splices,
    partition_size: String(partitioning.size),
    initial_partitions: String(partitioning.ahead),
  };
  const files = readdirSync(FOLDER).filter((file) => /^\d{4}_\w+\.sql$/.test(file));
  return files.sort().map((file) => {
    const variant = file.replace(/\.sql$/, `.${partitioning.strategy}.sql`);
    const text = readFileSync(FOLDER + (hasFile(variant) ? variant : file), "utf8");
    return {
      version: Number(file.slice(0, 4)),
      name: file.slice(5, -4),
      checksum: createHash("sha256").update(text).digest("hex"),
      sql: splice(text, splices),
    };
  });
}

function hasFile(name: string): boolean {
  return readdirSync(FOLDER).includes(name);
}

/** The version that this code needs, no more and no less. */
export function schemaVersion(): number {
  const versions = readdirSync(FOLDER).map((file) => Number(file.slice(0, 4)));
  const newest = Math.max(...versions);
  if (!Number.isInteger(newest)) throw new ConfigError(`no migrations found in ${FOLDER}`);
  return newest;
}
