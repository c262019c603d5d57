import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { expect, it } from "vitest";
import { TidemillServer } from "../../../src/server/index.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { ACME } from "./scene.ts";

const FREE = { port: 0 };

async function takenPort(): Promise<number> {
  const other = createServer().listen(0, "127.0.0.1");
  onCleanup(async () => void other.close());
  await once(other, "listening");
  return (other.address() as AddressInfo).port;
}

it.each(["producer", "worker", "http", "metrics"] as const)(
  "a server whose port for %s is taken says so, and leaves nothing running",
  async (name) => {
    const database = await testDatabase();
    const mill = await database.connect();
    const server = new TidemillServer(mill, {
      host: "127.0.0.1",
      producer: FREE,
      worker: FREE,
      http: FREE,
      metrics: FREE,
      auth: { staticTokens: [{ token: ACME, tenant: "acme", scopes: ["producer"] }] },
      [name]: { port: await takenPort() },
    });
    await expect(server.start()).rejects.toThrow(/cannot listen on .* choose another port/);
    await server.stop().catch(() => {});
    const alive = "SELECT count(*)::int AS count FROM tidemill.worker_nodes";
    await eventually(async () => {
      expect((await database.pool.query(alive)).rows).toEqual([{ count: 0 }]);
    });
  },
);
