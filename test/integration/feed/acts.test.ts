import { beforeAll, expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { ADMIN, type FeedScene, feedScene, HAND, MAILS_ONLY, OTHER } from "./scene.ts";

let scene: FeedScene;

beforeAll(async () => {
  scene = await feedScene("file");
  for (const queue of ["mails", "letters"]) await scene.post("/v1/tasks", { queue, payload: 1 });
});

const put = async (path: string, body: object, token: string): Promise<void> => {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const given = { method: "PUT", headers, body: JSON.stringify(body) };
  const { status } = await fetch(`${scene.url}${path}`, given);
  expect(status).toBe(200);
};

it("an act is told to those who see what it changed, and its details to admins only", async () => {
  const [colleague, mailer, admin, other, filtered] = await Promise.all([
    scene.listen({ query: "?view=summary" }),
    scene.listen({ token: MAILS_ONLY }),
    scene.listen({ token: ADMIN }),
    scene.listen({ token: OTHER }),
    scene.listen({ query: "?queue=mails" }),
  ]);
  const all = [colleague, mailer, admin, other, filtered];
  const told = (): unknown[][] => all.map((one) => one.of("act").map(({ data }) => data["act"]));

  await put("/v1/schedules/nightly", { cron: "0 3 * * *", queue: "mails" }, HAND);
  await scene.post("/v1/schedules/nightly/pause", {}, HAND);
  await scene.post("/v1/queues/letters/pause", { reason: "rent" }, ADMIN);
  await put("/v1/tenants/other/quota", { pendingTasks: 5 }, ADMIN);
  await scene.post("/v1/queues/mails/pause", { reason: "rent" }, ADMIN);

  const [schedule, queue] = ["schedule.change", "queue.change"];
  await eventually(() =>
    expect(told()).toEqual([
      [schedule, schedule, queue, queue],
      [schedule, schedule, queue],
      [schedule, schedule, queue, "cluster.change", queue],
      [queue, queue],
      [],
    ]),
  );
  for (const one of [colleague, mailer, other]) {
    for (const { data } of one.of("act")) expect(Object.keys(data).sort()).toEqual(["act", "at"]);
  }
  expect(admin.of("act").at(-1)?.data).toMatchObject({ reason: "rent", target: { name: "mails" } });
});
