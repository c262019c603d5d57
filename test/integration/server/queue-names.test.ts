import { beforeAll, describe, expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import { openScene, type Scene, type Who } from "./http-scene.ts";

const THEIRS = "globex-merger";
const REASON = "globex floods us";

let scene: Scene;
let waiting: string;

beforeAll(async () => {
  scene = await openScene();
  await scene.mill.queues.ensure("mails");
  const json = { queue: THEIRS };
  expect((await scene.call("POST", "/v1/tasks", { as: "other", json })).status).toBe(201);
  await scene.mill.queues.pause("mails", { reason: REASON });
  waiting = (await scene.mill.enqueue("mails", 1, { tenant: "acme" })).id;
});

const namesFor = async (as: Who): Promise<string[]> =>
  (await scene.call("GET", "/v1/queues", { as })).body.queues.map(({ name }) => name);

const STRANGERS: readonly Who[] = ["producer", "reader", "worker", "mailer"];

describe("a queue that another tenant named", () => {
  it("is neither listed nor found, until somebody defines it", async () => {
    for (const as of STRANGERS) {
      expect([as, await namesFor(as)]).toEqual([as, ["mails"]]);
      expect((await scene.call("GET", `/v1/queues/${THEIRS}`, { as })).status).toBe(404);
    }
    expect(await namesFor("other")).toEqual([THEIRS, "mails"]);
    expect((await scene.call("GET", `/v1/queues/${THEIRS}`, { as: "other" })).status).toBe(200);
    const seen = await scene.call("GET", `/v1/queues/${THEIRS}`, { as: "admin" });
    expect(seen.body).toMatchObject({ name: THEIRS, introducedBy: "globex" });
    await scene.mill.queues.define(queue(THEIRS));
    expect(await namesFor("reader")).toEqual([THEIRS, "mails"]);
  });

  it("is no help for who looks for another one, but for those in the process", async () => {
    const json = { cron: "@daily", queue: "nobody" };
    for (const as of ["producer", "admin"] as const) {
      const { status, body } = await scene.call("PUT", "/v1/schedules/x", { as, json });
      expect([status, body["detail"]]).toEqual([400, 'there is no queue "nobody"']);
    }
    await expect(scene.mill.schedules.put("x", json)).rejects.toThrow(
      `there is no queue "nobody"; registered are "${THEIRS}", "mails"`,
    );
  });
});

it("why somebody paused a queue is for admins", async () => {
  for (const as of STRANGERS) {
    const { body, text } = await scene.call("GET", "/v1/queues/mails", { as });
    expect([as, body["isPaused"], text.includes(REASON)]).toEqual([as, true, false]);
    const why = await scene.call("GET", `/v1/tasks/${waiting}/why`, { as });
    expect(why.body["why"]).toMatch(/^queue "mails" is paused since [\w:.-]+; resume it$/);
  }
  const told = { as: "admin" } as const;
  expect((await scene.call("GET", "/v1/queues/mails", told)).text).toContain(REASON);
  expect((await scene.call("GET", `/v1/tasks/${waiting}/why`, told)).text).toContain(REASON);
  expect(await scene.mill.tasks.why(waiting)).toContain(REASON);
});
