import { expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { status } from "../../support/stream-client.ts";
import { complete, newQueue, RemoteHand, tenant, tokenOf } from "./remote-hand.ts";
import { ACME_WORKER, type Scene, scene } from "./scene.ts";

interface Held {
  readonly id: string;
  readonly token: string;
}

async function post(at: Scene, path: string, body: object): Promise<Response> {
  const { host, port } = at.server.address("http");
  return await fetch(`http://${host}:${port}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${ACME_WORKER}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

async function claimed(at: Scene, queue: string): Promise<Held> {
  const answer = await post(at, "/v1/claims", { queues: [queue], waitSeconds: 20 });
  const { tasks } = (await answer.json()) as { tasks: readonly Held[] };
  if (tasks[0] === undefined) throw new Error("no task came");
  return tasks[0];
}

it("takes results by token while it drains, also of what another server handed out", async () => {
  const server = { http: { port: 0 }, worker: { port: 0 }, leaseSeconds: 30, drainSeconds: 20 };
  const going = await scene({ server });
  const other = await scene({ server: { ...server, worker: false }, database: going.database });
  const [streamed, rest] = [newQueue(), newQueue()];
  const hand = await RemoteHand.at(going).hello({ queues: [streamed.name] });
  await going.mill.enqueue(streamed, 1, { tenant });
  const busy = await hand.get();
  await going.mill.enqueueMany(rest, [
    { payload: 1, tenant },
    { payload: 2, tenant },
  ]);
  const [own, theirs] = [await claimed(going, rest.name), await claimed(other, rest.name)];
  const stopping = going.server.stop(); // It waits for the stream, which has a task.
  await eventually(() => expect(hand.all("drain")).toHaveLength(1));
  for (const { id, token } of [own, theirs]) {
    const answer = await post(going, `/v1/tasks/${id}/complete`, { token, result: { n: id } });
    expect([answer.status, await answer.json()]).toEqual([200, { id }]);
    expect(await other.mill.result(id)).toEqual({ n: id });
  }
  expect(await hand.complete(busy)).toBe("completed");
  expect(await stopping).toEqual({ givenBack: 0 });
});

it("waits for what its workers run, and not for what they took to another server", async () => {
  // Renewals, which find out too, come after a third of a lease.
  const server = { worker: { port: 0 }, leaseSeconds: 60, drainSeconds: 30 };
  const going = await scene({ server });
  const other = await scene({ server, database: going.database });
  const work = newQueue();
  const hand = await RemoteHand.at(going).hello({ queues: [work.name] });
  const payloads = Array.from({ length: 20 }, (_, n) => ({ payload: n, tenant }));
  await going.mill.enqueueMany(work, payloads); // As many as are claimed as one row.
  hand.ready(20);
  const [kept, ended, ...rest] = await hand.gets(20);
  if (kept === undefined || ended === undefined) throw new Error("too few came");
  const begun = performance.now();
  const stopping = going.server.stop();
  await eventually(() => expect(hand.all("drain")).toHaveLength(1));
  const hello = { queues: [work.name], held: [tokenOf(kept)] };
  const elsewhere = await RemoteHand.at(other).hello(hello);
  await eventually(() => expect(elsewhere.all("renewed")).toHaveLength(1));
  expect(await elsewhere.complete(ended)).toBe("completed");
  const { leaseLosses } = going.mill.taskMetrics;
  await eventually(() => expect(leaseLosses.value({ queue: work.name })).toBe(2));
  const states = await hand.act(...rest.map((task) => [task, complete()] as const));
  expect(new Set(states)).toEqual(new Set(["completed"]));
  expect((await hand.stream.ended).code).toBe(status.OK);
  expect(await stopping).toEqual({ givenBack: 0 });
  expect(performance.now() - begun).toBeLessThan(15_000);
  expect(hand.all("leaseLost")).toEqual([]);
  expect(await elsewhere.complete(kept)).toBe("completed");
});
