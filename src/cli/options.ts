import { InvalidArgumentError } from "commander";
import { withoutUndefined } from "../base/options.ts";
import type { ColumnFamily, NamesOptions, TableOptions } from "../db/names.ts";
import type { ConnectOptions } from "../worker/tidemill.ts";
import { UsageError } from "./errors.ts";

/** Flags that every command takes. */
export interface GlobalFlags {
  readonly databaseUrl?: string;
  readonly directUrl?: string;
  readonly schema?: string;
  readonly columnFamily?: ColumnFamily;
  readonly eventsTable?: string;
  readonly streamHeadsTable?: string;
  readonly workerNodesTable?: string;
  readonly consumerAssignmentsTable?: string;
  readonly consumerCheckpointsTable?: string;
  readonly consumerGapSkipsTable?: string;
  readonly leaderElectionTable?: string;
  readonly debug?: boolean;
}

/** The address given by flag or environment; empty counts as not given. */
export function givenDatabaseUrl(flags: GlobalFlags): string | undefined {
  return flags.databaseUrl || process.env["DATABASE_URL"] || undefined;
}

export function requireDatabaseUrl(flags: GlobalFlags): string {
  const url = givenDatabaseUrl(flags);
  if (url !== undefined) return url;
  throw new UsageError(
    'no database: set DATABASE_URL or --database-url, or start one with "tidemill dev"',
  );
}

/** The names that the flags configure. */
export function namesOptions(flags: GlobalFlags): NamesOptions {
  const { schema, columnFamily } = flags;
  const tables = withoutUndefined({
    events: flags.eventsTable,
    streamHeads: flags.streamHeadsTable,
    workerNodes: flags.workerNodesTable,
    consumerAssignments: flags.consumerAssignmentsTable,
    consumerCheckpoints: flags.consumerCheckpointsTable,
    consumerGapSkips: flags.consumerGapSkipsTable,
    workerLeaderElection: flags.leaderElectionTable,
  }) as TableOptions;
  return { ...withoutUndefined({ schema, columnFamily }), tables };
}

/** What the library needs of the flags. */
export function connectOptions(flags: GlobalFlags): ConnectOptions {
  const { directUrl } = flags;
  return { ...namesOptions(flags), ...(directUrl === undefined ? {} : { directUrl }) };
}

/** For an option that takes a whole number in a range. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
  };
}

/** For an option that takes a position of the log. */
export function position(text: string): bigint {
  if (/^\d{1,18}$/.test(text)) return BigInt(text);
  throw new InvalidArgumentError("It must be a position: a whole number of at least 0.");
}
