import { beforeAll, expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { ADMIN, type FeedScene, feedScene, HAND, OTHER } from "./scene.ts";

interface SummaryData {
  readonly counts: readonly { queue: string; state: string; count: number }[];
  readonly changes: readonly { id: string; state: string }[];
}

let scene: FeedScene;

beforeAll(async () => {
  scene = await feedScene("file");
});

const enqueue = async (count: number): Promise<void> => {
  const tasks = Array.from({ length: count }, (_, payload) => ({ payload }));
  await scene.post("/v1/tasks/batch", { queue: "mails", tasks });
};

it("tells what became of how many, to whom it may, without a message for each", async () => {
  const mine = await scene.listen({ query: "?view=summary" });
  const others = await scene.listen({ token: OTHER, query: "?view=summary" });
  await enqueue(500);
  const counted = (): number =>
    mine
      .of("summary")
      .flatMap(({ data }) => (data as unknown as SummaryData).counts)
      .filter(({ queue, state }) => queue === "mails" && state === "pending")
      .reduce((sum, { count }) => sum + count, 0);
  await eventually(() => expect(counted()).toBe(500));
  expect(mine.of("summary").length).toBeLessThan(20);
  expect(mine.of("task")).toEqual([]);
  expect(others.of("summary")).toEqual([]);
});

it("goes on from the id of a summary without a gap", async () => {
  const first = await scene.listen({ query: "?view=summary" });
  const { id } = await scene.post("/v1/tasks", { queue: "mails", payload: 1 });
  const told = await first.until("summary");
  first.close();
  const missed = await scene.post("/v1/tasks", { queue: "mails", payload: 2 });
  const again = await scene.listen({ query: "?view=summary", lastEventId: told.id ?? "" });
  const ids = (): string[] =>
    again
      .of("summary")
      .flatMap(({ data }) => (data as unknown as SummaryData).changes.map((one) => one.id));
  await eventually(() => expect(ids()).toContain(missed["id"]));
  expect(ids()).not.toContain(id);
});

it("tells admins how the cluster is, and nobody else", async () => {
  const admin = await scene.listen({ token: ADMIN, query: "?view=summary" });
  const tenant = await scene.listen({ token: HAND, query: "?view=summary" });
  const { data } = await admin.until("status");
  expect(data).toMatchObject({ leader: {}, consumers: [], openGaps: { positions: [] } });
  expect(data["workers"]).toMatchObject([{ status: "active" }]);
  expect(tenant.of("status")).toEqual([]);
  const plain = await scene.listen({ token: ADMIN });
  await eventually(() => expect(admin.of("status").length).toBeGreaterThan(1));
  expect(plain.of("status")).toEqual([]);
});

it("refuses a summary of one task", async () => {
  const asked = scene.listen({ query: "?view=summary&task=1" });
  await expect(asked).rejects.toThrow("a summary is of many tasks");
});
