import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { queue } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { backendOf } from "../../support/handled.ts";
import { type OwnServer, ownServer } from "../../support/own-server.ts";
import { feedScene } from "./scene.ts";

// A test that is given up while it restarts the server would take the next one down with it.
vi.setConfig({ testTimeout: 60_000 });

const WORK = queue<number>("work");
let server: OwnServer;

beforeAll(async () => {
  server = await ownServer();
});

afterAll(() => server.remove());

it("a crash of the database is told, whatever it took back, and the feed goes on", async () => {
  const database = await testDatabase({ server: server.url });
  const scene = await feedScene("test", {}, database);
  const feed = await scene.listen();
  const { id: before } = await scene.mill.enqueue(WORK, 1);
  await eventually(() => expect(feed.states(before)).toEqual(["pending"]));
  const place = feed.lastId ?? "";
  const victim = await database.session();
  process.kill(await backendOf(victim), "SIGKILL");
  await feed.until("reset");
  await eventually(() => expect(feed.of("ready")).toHaveLength(2));
  const after = await eventually(async () => await scene.mill.enqueue(WORK, 2));
  await eventually(() => expect(feed.states(after.id)).toEqual(["pending"]));
  // The positions begin anew: a place of before means nothing now.
  const late = await scene.listen({ lastEventId: place });
  expect(late.messages[0]?.event).toBe("reset");
});
