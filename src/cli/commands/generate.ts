import { withoutUndefined } from "../../base/options.ts";
import {
  type GenerateMigrationsOptions,
  generateMigrations,
  renderMigrations,
} from "../../db/generate.ts";
import { print, printJson, printRaw } from "../output.ts";
import type { MigrateFlags } from "./migrate.ts";

export interface GenerateFlags extends MigrateFlags {
  readonly output?: string;
  readonly filename?: string;
  readonly force?: boolean;
}

/** `tidemill migrate generate` */
export async function runGenerate(flags: GenerateFlags): Promise<void> {
  const { json, dryRun } = flags;
  const options = optionsOf(flags);
  if (dryRun === true) {
    const sql = renderMigrations(options);
    if (json === true) printJson({ sql });
    else printRaw(sql);
    return;
  }
  const { path, sql } = await generateMigrations(options);
  if (json === true) printJson({ path, sql });
  else print(`Generated PostgreSQL migration: ${path}`);
}

function optionsOf(flags: GenerateFlags): GenerateMigrationsOptions {
  return withoutUndefined({
    outputFolder: flags.output,
    outputFilename: flags.filename,
    force: flags.force,
    schema: flags.schema,
    columnFamily: flags.columnFamily,
    eventsTable: flags.eventsTable,
    streamHeadsTable: flags.streamHeadsTable,
    workerNodesTable: flags.workerNodesTable,
    consumerAssignmentsTable: flags.consumerAssignmentsTable,
    consumerCheckpointsTable: flags.consumerCheckpointsTable,
    consumerGapSkipsTable: flags.consumerGapSkipsTable,
    leaderElectionTable: flags.leaderElectionTable,
    partitionStrategy: flags.partitionStrategy,
    partitionSize: flags.partitionSize,
    initialPartitions: flags.initialPartitions,
  });
}
