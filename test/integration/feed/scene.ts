import type { Tidemill } from "../../../src/index.ts";
import { type ServerOptions, TidemillServer } from "../../../src/server/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { FeedStream, type FeedStreamOptions } from "../../support/feed-stream.ts";

export const READER = "token-of-a-reader-0123456789";
export const ADMIN = "token-of-an-admin-0123456789";
export const HAND = "token-of-a-hand-0123456789";
export const OTHER = "token-of-another-tenant-0123456789";
export const MAILS_ONLY = "token-for-mails-only-0123456789";

const STATIC = [
  { token: READER, tenant: "default", scopes: ["read"] },
  { token: ADMIN, tenant: "default", scopes: ["admin"] },
  { token: HAND, tenant: "default", scopes: ["producer", "worker", "read"] },
  { token: OTHER, tenant: "other", scopes: ["producer", "worker", "read"] },
  { token: MAILS_ONLY, tenant: "default", scopes: ["read"], queues: ["mails"] },
] as const;

export const SERVER: ServerOptions = {
  host: "127.0.0.1",
  producer: false,
  worker: false,
  http: { port: 0 },
  metrics: false,
  deliverWebhooks: false,
  drainSeconds: 2,
  auth: { staticTokens: STATIC },
};

export interface FeedScene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly server: TidemillServer;
  readonly url: string;
  /** Opened, and told that nothing is missing from now on. */
  readonly listen: (options?: Partial<FeedStreamOptions>) => Promise<FeedStream>;
  /** Another server over the same database. */
  readonly another: () => Promise<FeedScene>;
  readonly post: (path: string, body: object, token?: string) => Promise<Record<string, unknown>>;
}

export async function feedScene(
  until: "test" | "file" = "test",
  options: ServerOptions = {},
  database?: TestDatabase,
): Promise<FeedScene> {
  const used = database ?? (await testDatabase({ until }));
  const mill = await used.connect();
  const server = new TidemillServer(mill, { ...SERVER, ...options });
  await server.start();
  onCleanup(() => server.stop(), until);
  const url = `http://127.0.0.1:${server.address("http").port}`;
  return {
    database: used,
    mill,
    server,
    url,
    async listen(given = {}) {
      const stream = await FeedStream.ready(url, { token: READER, ...given });
      onCleanup(async () => stream.close());
      return stream;
    },
    another: () => feedScene(until, options, used),
    async post(path, body, token = HAND) {
      const response = await fetch(`${url}${path}`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
      return (await response.json()) as Record<string, unknown>;
    },
  };
}
