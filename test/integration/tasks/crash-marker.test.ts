import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { backendOf } from "../../support/handled.ts";
import { type OwnServer, ownServer } from "../../support/own-server.ts";
import { readColumn } from "./scene.ts";

// A test that is given up while it restarts the server would take the next one down with it.
vi.setConfig({ testTimeout: 60_000 });

let server: OwnServer;

beforeAll(async () => {
  server = await ownServer();
});

afterAll(() => server.remove());

const readMarker = (database: TestDatabase): Promise<string[]> =>
  readColumn(database, "SELECT id FROM tidemill.crash_marker");

const readStart = (database: TestDatabase): Promise<string[]> =>
  readColumn(database, "SELECT pg_postmaster_start_time()::text");

describe("the marker by which workers know a server again", () => {
  it("is gone when one process of the server was killed, which keeps its start", async () => {
    const database = await testDatabase({ server: server.url });
    expect(await readMarker(database)).toHaveLength(1);
    const start = await readStart(database);
    const victim = await database.session();
    const other = await database.session();
    const died = new Promise((resolve) => other.once("end", resolve));
    process.kill(await backendOf(victim), "SIGKILL");
    await died; // With all others: the server begins anew.
    await eventually(async () => expect(await readMarker(database)).toEqual([]));
    expect(await readStart(database)).toEqual(start);
  });

  it("is gone when the server crashed, and stays when it was stopped cleanly", async () => {
    const database = await testDatabase({ server: server.url });
    const marker = await readMarker(database);
    expect(marker).toHaveLength(1);
    await server.stop();
    await server.start();
    expect(await readMarker(database)).toEqual(marker);
    await server.crash();
    await server.start();
    expect(await readMarker(database)).toEqual([]);
  });
});
