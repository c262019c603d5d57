import { defaultDataDir, startEmbedded } from "../../embedded/launcher.ts";
import { UsageError } from "../errors.ts";
import { type GlobalFlags, givenDatabaseUrl } from "../options.ts";
import { announce } from "../progress.ts";

/** Each worker is a process with connections of its own, and people add some. */
const CONNECTIONS = "200";

export interface DevDatabaseFlags extends GlobalFlags {
  readonly dataDir?: string;
  readonly postgresPort?: number;
}

export interface DevDatabase {
  readonly url: string;
  /** Ours to fill, as nobody keeps anything else there. */
  readonly isEmbedded: boolean;
  /** Stops the server if it was started here. */
  close(): Promise<void>;
}

/** The database that was named, else an embedded one, started or found running. */
export async function openDevDatabase(flags: DevDatabaseFlags): Promise<DevDatabase> {
  const given = givenDatabaseUrl(flags);
  if (given !== undefined && flags.dataDir === undefined) {
    await announce(`Using the database ${withoutPassword(given)}`);
    return { url: given, isEmbedded: false, close: async () => {} };
  }
  if (flags.databaseUrl) {
    throw new UsageError("--data-dir is for the embedded PostgreSQL: leave out --database-url");
  }
  const dataDir = flags.dataDir ?? defaultDataDir();
  await announce(`Starting PostgreSQL in ${dataDir}`);
  const { postgresPort: port } = flags;
  const settings = { max_connections: CONNECTIONS };
  const server = await startEmbedded({
    dataDir,
    settings,
    ...(port === undefined ? {} : { port }),
  });
  await announce(
    server.adopted
      ? `PostgreSQL ${server.version} ran there already, and stays when this ends`
      : `PostgreSQL ${server.version} is up`,
  );
  await announce(`Database: ${server.url}`);
  return {
    url: server.url,
    isEmbedded: true,
    async close() {
      if (server.adopted) return;
      await announce("Stopping PostgreSQL");
      await server.stop();
    },
  };
}

function withoutPassword(text: string): string {
  if (!URL.canParse(text)) return "that was given";
  const url = new URL(text);
  if (url.password !== "") url.password = "***";
  return url.href;
}
