import { withoutUndefined } from "../../base/options.ts";
import type { PartitioningOptions } from "../../db/migrations.ts";
import { Tidemill } from "../../worker/tidemill.ts";
import { connectOptions, type GlobalFlags, requireDatabaseUrl } from "../options.ts";
import { colors, print, printJson } from "../output.ts";

export interface MigrateFlags extends GlobalFlags {
  readonly dryRun?: boolean;
  readonly json?: boolean;
  readonly partitionStrategy?: "none" | "native";
  readonly partitionSize?: number;
  readonly initialPartitions?: number;
}

/** `tidemill migrate` */
export async function runMigrate(flags: MigrateFlags): Promise<void> {
  const dryRun = flags.dryRun === true;
  const partitioning = withoutUndefined({
    strategy: flags.partitionStrategy,
    size: flags.partitionSize,
    ahead: flags.initialPartitions,
  }) as PartitioningOptions;
  const { applied, version } = await Tidemill.migrate(requireDatabaseUrl(flags), {
    ...connectOptions(flags),
    ...(Object.keys(partitioning).length === 0 ? {} : { partitioning }),
    dryRun,
  });
  if (flags.json === true) {
    const migrations = applied.map(({ sql, ...one }) => (dryRun ? { ...one, sql } : one));
    printJson({ dryRun, version, applied: migrations });
    return;
  }
  for (const one of applied) {
    print(`${dryRun ? "Would apply" : "Applied"} ${one.version} ${one.name}`);
  }
  const schema = flags.schema ?? "tidemill";
  if (dryRun && applied.length > 0) return;
  const rest = applied.length === 0 ? "; nothing to apply" : "";
  print(colors.green(`Schema ${schema} is at version ${version}${rest}.`));
}
