import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { cable } from "../../integration/client/scene.ts";
import { ACME, READER, scene } from "../../integration/server/scene.ts";
import { readColumn } from "../../integration/tasks/scene.ts";
import { eventually } from "../../support/eventually.ts";
import { BUILD_MS_MAX, CLIENTS, type GoProgram, GoPrograms, missingGo } from "./go-programs.ts";

let missing: string | undefined;
let programs: GoPrograms;
const started: GoProgram[] = [];

beforeAll(async () => {
  missing = await missingGo();
  if (missing === undefined) programs = await GoPrograms.build("producer");
}, BUILD_MS_MAX);

afterEach(() => {
  for (const program of started.splice(0)) program.kill();
});

afterAll(() => programs?.close());

function start(...[name, flags]: Parameters<GoPrograms["start"]>): GoProgram {
  const program = programs.start(name, { token: ACME, ...flags });
  started.push(program);
  return program;
}

describe(`Tidemill's server and a producer by ${CLIENTS}`, () => {
  it("store ten thousand tasks, one by one and in batches", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const { url, database } = await scene();
    const both = [
      start("producer", { url, count: 5_000, concurrency: 200 }),
      start("producer", { url, count: 5_000, mode: "batch", batch: 64, command: "many" }),
    ];
    for (const producer of both) {
      expect(await producer.end(), producer.log).toBe(0);
      expect(producer.of("hello")).toEqual([{ event: "hello", tenant: "acme", subject: "robot" }]);
      const acks = producer.of("ack");
      expect(acks.filter(({ error }) => error !== "")).toEqual([]);
      expect(new Set(acks.map(({ id }) => id)).size).toBe(5_000);
    }
    // Each caller has the id of the task that it sent.
    const acked = both.flatMap((producer) => producer.of("ack"));
    const stored = await readColumn<string>(
      database,
      `SELECT task.id || ' ' || (payload::json ->> 'n') FROM tidemill.live_tasks AS task`,
    );
    expect(stored.sort()).toEqual(acked.map(({ id, index }) => [id, index].join(" ")).sort());
  });

  it("agree on what is refused", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const { url } = await scene();
    for (const [flags, error] of [
      [{ command: "" }, "command is required"],
      [{ command: "", mode: "batch" }, "command is required"],
      [{ webhook: "nowhere" }, "invalid webhook url"],
      [{ delay: -1 }, "delaySeconds must be >= 0"],
    ] as const) {
      const producer = start("producer", { url, ...flags });
      expect(await producer.end(), producer.log).toBe(0);
      expect(producer.of("ack")).toEqual([{ event: "ack", index: 0, id: "", error }]);
    }
    for (const [token, error] of [
      ["nobody", "code = Unauthenticated desc = auth failed: the token is not valid"],
      [READER, "code = PermissionDenied desc = missing scope"],
    ] as const) {
      const producer = start("producer", { url, token });
      expect(await producer.end()).toBe(1);
      expect(producer.of("end")[0]?.["error"]).toContain(error);
    }
  });

  it("find the first task by its key", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const { url } = await scene();
    const flags = { url, count: 50, key: "order-%d", command: "bills" };
    const [first, second] = [start("producer", flags), start("producer", flags)];
    const ids = async (producer: GoProgram): Promise<unknown[]> => {
      expect(await producer.end(), producer.log).toBe(0);
      const acks = producer.of("ack").sort((a, b) => Number(a["index"]) - Number(b["index"]));
      return acks.map(({ id, error }) => (error === "" ? id : error));
    };
    const found = await ids(first);
    expect(await ids(second)).toEqual(found);
    expect(new Set(found).size).toBe(50);
  });

  it("lose and double nothing when the stream is cut under calls", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const { url, database } = await scene();
    const line = await cable(url);
    const count = 2_000;
    const flags = { url: line.address, count, concurrency: 50, key: "order-%d", again: "true" };
    const producer = start("producer", flags);
    const rows = "SELECT payload::json ->> 'n' FROM tidemill.live_tasks";
    for (const acked of [100, 600, 1_200]) {
      await eventually(() => expect(producer.of("ack").length).toBeGreaterThan(acked));
      const [answered, lost] = [producer.of("ack").length, producer.of("lost").length];
      line.loseAnswers(true); // Stored, and nobody hears of it.
      await eventually(async () => {
        expect((await readColumn(database, rows)).length).toBeGreaterThan(answered);
      });
      line.cut();
      line.loseAnswers(false);
      await eventually(() => expect(producer.of("lost").length).toBeGreaterThan(lost));
    }
    expect(await producer.end(), producer.log).toBe(0);
    const errors = producer.of("lost").map(({ error }) => String(error));
    expect(errors.filter((error) => /stream closed: rpc error/.test(error))).not.toEqual([]);
    expect(errors.filter((error) => !/stream closed|EOF|deadline/.test(error))).toEqual([]);
    const indexes = producer.of("ack").map(({ index }) => String(index));
    expect(new Set(indexes).size).toBe(count);
    expect(indexes).toHaveLength(count);
    expect((await readColumn<string>(database, rows)).sort()).toEqual(indexes.sort());
  });
});
