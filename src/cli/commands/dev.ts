import { systemClock } from "../../base/clock.ts";
import { quoteIdentifier } from "../../base/identifier.ts";
import { EXIT_GAVE_BACK, type Stopped, stopSignal } from "../../base/stop-signal.ts";
import { resolveNames } from "../../db/names.ts";
import { Tidemill } from "../../worker/tidemill.ts";
import { type DevDatabase, type DevDatabaseFlags, openDevDatabase } from "../demo/database.ts";
import { Demo } from "../demo/demo.ts";
import { startDevServer } from "../demo/dev-server.ts";
import { LiveView } from "../demo/live-view.ts";
import { CHANNEL, DEMO_SCOPES } from "../demo/shop.ts";
import { UsageError } from "../errors.ts";
import { connectOptions, namesOptions } from "../options.ts";
import { announce } from "../progress.ts";
import type { DemoNames } from "../sql/demo.ts";

export interface DevFlags extends DevDatabaseFlags {
  readonly workers: number;
  readonly rate: number;
  readonly once?: boolean;
  readonly server: boolean;
  readonly dashboard?: string;
}

const ONCE_MS = 2_000;

/** `tidemill dev`: everything that a newcomer needs in one command. */
export async function runDev(flags: DevFlags): Promise<void> {
  const names = demoNames(flags);
  const { signal, release } = stopSignal();
  let database: DevDatabase | undefined;
  try {
    database = await openDevDatabase(flags);
    if (!signal.aborted) await migrateFor(database, flags);
    if (!signal.aborted) {
      const { givenBack } = await demonstrate(database, flags, names, signal);
      if (givenBack > 0) process.exitCode = EXIT_GAVE_BACK;
    }
  } finally {
    await database?.close();
    release();
  }
  await announce("Stopped");
}

async function demonstrate(
  database: DevDatabase,
  flags: DevFlags,
  names: DemoNames,
  signal: AbortSignal,
): Promise<Stopped> {
  const { workers, rate, once: mustBeExact = false } = flags;
  const view = new LiveView();
  const connect = { ...connectOptions(flags), notifyChannel: CHANNEL };
  const logged = { ...connect, logger: view.logger() };
  await using mill = await Tidemill.connect(database.url, logged);
  if (!database.isEmbedded) await refuseForeignLog(mill, names);
  const order = { url: database.url, connect, names };
  await using demo = await Demo.open(mill, { order, names, workers, rate, view, mustBeExact });
  const databaseUrl = database.isEmbedded ? database.url : undefined;
  const serving = { dashboard: flags.dashboard, databaseUrl };
  await using server = flags.server ? await startDevServer(mill, demo, serving) : undefined;
  await announce(`A shop with ${rate} events/s and ${workers} worker process(es); Ctrl-C stops it`);
  const ending = new AbortController();
  const end = (): void => ending.abort();
  signal.addEventListener("abort", end, { once: true });
  if (signal.aborted) end();
  // Not AbortSignal.timeout: combined with another, Node 20 loses it to the garbage collector.
  const cancel = mustBeExact ? systemClock.after(ONCE_MS, end) : end;
  const { report, givenBack } = await demo.run(ending.signal).finally(cancel);
  await announce(report);
  const served = await server?.stop();
  return { givenBack: givenBack + (served?.givenBack ?? 0) };
}

async function migrateFor(database: DevDatabase, flags: DevFlags): Promise<void> {
  const options = connectOptions(flags);
  if (!database.isEmbedded) {
    const { applied } = await Tidemill.migrate(database.url, { ...options, dryRun: true });
    const [first] = applied;
    if (first !== undefined && first.version > 1) {
      throw new UsageError(
        "this database has older tables of tidemill, which a demo does not upgrade; " +
          'run "tidemill migrate", or leave out the address for an embedded PostgreSQL',
      );
    }
  }
  const { version } = await Tidemill.migrate(database.url, options);
  await announce(`Schema ${flags.schema ?? "tidemill"} is at version ${version}`);
}

/** The demo writes into the log, so a log that others use is none of its business. */
async function refuseForeignLog(mill: Tidemill, { schema }: DemoNames): Promise<void> {
  const found = (await mill.listConsumers()).map((one) => one.name);
  const isOurs = Object.keys(DEMO_SCOPES).every((name) => found.includes(name));
  if (isOurs || (found.length === 0 && (await mill.latestPosition()) === 0n)) return;
  throw new UsageError(
    "the log in this database is not a demo's, and a demo would write into it; name another " +
      `schema, such as --schema ${schema.replaceAll('"', "")}, or leave out the address`,
  );
}

function demoNames(flags: DevFlags): DemoNames {
  const { schema, splices } = resolveNames(namesOptions(flags));
  const splice = (name: string): string => splices[name] ?? "";
  return {
    schema: quoteIdentifier(`${schema}_demo`),
    mill: quoteIdentifier(schema),
    events: splice("events"),
    checkpoints: splice("consumer_checkpoints"),
    streamType: splice("stream_type"),
    streamId: splice("stream_id"),
  };
}
