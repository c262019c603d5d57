import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import {
  ConfigError,
  completed,
  InvalidInputError,
  queue,
  RestClient,
} from "../../../src/client/index.ts";
import { consumer } from "../../../src/index.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { ADMIN, cable, PRODUCER, type Scene, scene } from "./scene.ts";

const mails = queue("mails", { schema: z.object({ to: z.string() }) });

let server: Scene;
let rest: RestClient;

beforeEach(async () => {
  server = await scene();
  rest = new RestClient({ url: server.http, token: ADMIN });
  await rest.queues.ensure("mails");
  await rest.queues.ensure("blobs");
});

describe("the REST client", () => {
  it("creates, shows, lists, cancels and retries tasks", async () => {
    const { id, queue: name } = await rest.tasks.create(mails, { to: "a" }, { delaySeconds: 600 });
    expect(name).toBe("mails");
    expect(await rest.tasks.get(id)).toMatchObject({ state: "scheduled", payload: { to: "a" } });
    const ids = await rest.tasks.createMany(mails, [
      { payload: { to: "b" } },
      { payload: { to: "c" }, kind: "k" },
    ]);
    const page = await rest.tasks.list({ queue: "mails", limit: 2 });
    expect(page.tasks.map((task) => task.id)).toEqual(ids.toReversed());
    const rest2 = await rest.tasks.list({ ...cursorOf(page), limit: 2 });
    expect(rest2.tasks.map((task) => task.id)).toEqual([id]);
    expect(await rest.tasks.why(id)).toMatch(/./);
    expect(await rest.tasks.cancel(id, "no need")).toBe("cancelled");
    expect(await rest.tasks.result(id)).toMatchObject({ state: "cancelled" });
    await expect(rest.tasks.completed(id)).rejects.toMatchObject({ code: "TM_TASK_FAILED" });
    await rest.tasks.retry(id);
    expect(await rest.tasks.get(id)).toMatchObject({ state: "pending" });
    expect(await rest.tasks.failures(id)).toEqual(expect.any(Array));
    const bytes = await rest.tasks.create("blobs", Buffer.from([1, 2]));
    expect(await rest.tasks.get(bytes.id)).toMatchObject({ payloadBase64: "AQI=" });
  });

  it("waits for results", async () => {
    const { id } = await rest.tasks.create(mails, { to: "a" });
    const waiting = rest.tasks.completed<{ sent: boolean }>(id, { withinSeconds: 20 });
    const worker = await server.mill.startWorker({
      handlers: [mails.handle(() => completed(1))],
    });
    onCleanup(() => worker.stop());
    expect(await waiting).toBe(1);
    const { id: never } = await rest.tasks.create(mails, { to: "b" }, { delaySeconds: 600 });
    expect(await rest.tasks.result(never, { waitSeconds: 1 })).toMatchObject({
      state: "scheduled",
    });
  });

  it("appends events, and reads its own writes", async () => {
    const seen: string[] = [];
    const view = consumer("view_v1", { handle: ({ type }) => void seen.push(type) });
    const worker = await server.mill.startWorker({ consumers: [view] });
    onCleanup(() => worker.stop());
    const stream = { type: "Order", id: "a/b" };
    const { token } = await rest.events.append(stream, [{ type: "Paid", data: { total: 1 } }], {
      expectedVersion: "no-stream",
    });
    const waitFor = { consumer: "view_v1", token };
    expect(await rest.events.read(stream, { waitFor })).toMatchObject([
      { type: "Paid", data: { total: 1 }, stream, streamVersion: "1" },
    ]);
    expect(seen).toEqual(["Paid"]);
    expect(await rest.events.readAll({ after: 0, limit: 5 })).toHaveLength(1);
    const again = rest.events.append(stream, [{ type: "Paid" }], { expectedVersion: "no-stream" });
    await expect(again).rejects.toMatchObject({ code: "TM_WRONG_EXPECTED_VERSION" });
  });

  it("looks after queues and dead letters", async () => {
    expect(await rest.queues.ensure("mails")).toMatchObject({ name: "mails" });
    expect(await rest.queues.pause("mails", "holidays")).toMatchObject({
      isPaused: true,
      pauseReason: "holidays",
    });
    expect(await rest.queues.resume("mails")).toMatchObject({ isPaused: false });
    expect(await rest.queues.setLimits("mails", { concurrency: 3 })).toMatchObject({
      limits: { concurrency: 3 },
    });
    expect(await rest.queues.resetLimits("mails")).toMatchObject({ limits: { concurrency: null } });
    expect((await rest.queues.list()).map(({ name }) => name)).toContain("mails");
    expect(await rest.deadLetters.list()).toMatchObject({ deadLetters: [] });
    expect(await rest.deadLetters.redrive({ all: true })).toEqual({ redriven: 0, hasMore: false });
    expect(await rest.deadLetters.purge({ queue: "mails" })).toEqual({ purged: 0, hasMore: false });
    const { status, body } = await rest.call({ path: "/v1/workers" });
    expect([status, body]).toMatchObject([200, { workers: expect.any(Array) as unknown[] }]);
  });

  it("throws what the server refused with", async () => {
    await expect(rest.tasks.get("1")).rejects.toMatchObject({ code: "TM_NOT_FOUND" });
    const stranger = new RestClient({ url: server.http, token: "nobody" });
    await expect(stranger.tasks.list()).rejects.toMatchObject({ code: "TM_UNAUTHENTICATED" });
    const producer = new RestClient({ url: server.http, token: PRODUCER });
    await expect(producer.queues.pause("mails")).rejects.toMatchObject({ code: "TM_FORBIDDEN" });
    const bad = rest.tasks.create(mails, { to: 1 } as never);
    await expect(bad).rejects.toBeInstanceOf(InvalidInputError);
    await expect(rest.tasks.list({ stat: "dead" } as never)).rejects.toThrow(/state/);
    expect(() => new RestClient({ url: "ftp://x", token: "t" })).toThrow(ConfigError);
    expect(() => new RestClient({ url: server.http, token: "" })).toThrow(/token/);
  });

  it("asks again for a lost answer, and the task is stored once", async () => {
    const line = await cable(new URL(server.http).host);
    const shaky = new RestClient({ url: `http://${line.address}`, token: ADMIN });
    line.loseAnswers(true);
    const creating = shaky.tasks.create(mails, { to: "a" });
    const count = async (): Promise<number> => {
      const sql = "SELECT 1 FROM tidemill.live_tasks";
      return (await server.database.pool.query(sql)).rows.length;
    };
    await eventually(async () => expect(await count()).toBe(1));
    line.loseAnswers(false);
    line.cut();
    await creating;
    expect(await count()).toBe(1);
    expect(line.connections).toBe(2);
    line.refuse(true);
    line.cut();
    const away = new RestClient({ url: `http://${line.address}`, token: ADMIN, attemptsMax: 1 });
    await expect(away.tasks.list()).rejects.toMatchObject({ code: "TM_UNAVAILABLE" });
  });
});

const cursorOf = ({ cursor }: { cursor?: string }): { cursor?: string } =>
  cursor === undefined ? {} : { cursor };
