import type { Socket } from "node:net";
import { expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { startRelay } from "../../support/relay.ts";
import { HANDED_OUT, newQueue, RemoteHand, tenant, tokenOf } from "./remote-hand.ts";
import { scene } from "./scene.ts";

const COUNT = 40;
const PAYLOAD_BYTES = 300_000;
/** Behind 1 MiB that was not read comes one message of 3 MiB at most. */
const UNREAD_MAX = Math.ceil((4 * 1024 * 1024) / PAYLOAD_BYTES);

it("leaves to others what a worker does not read", async () => {
  const at = await scene({ server: { ...HANDED_OUT, leaseSeconds: 60 } });
  const target = `http://127.0.0.1:${at.server.address("worker").port}`;
  const answers: Socket[] = [];
  const relay = await startRelay(target, (client, server) => {
    client.on("data", (bytes) => void server.write(bytes));
    server.on("data", (bytes) => void client.write(bytes));
    answers.push(server);
  });
  const mails = newQueue();
  const stalled = await new RemoteHand(Number(new URL(relay.url).port)).hello({
    queues: [mails.name],
  });
  const reader = await RemoteHand.at(at).hello({ queues: [mails.name] });
  for (const socket of answers) socket.pause();
  stalled.ready(COUNT);
  const payload = "x".repeat(PAYLOAD_BYTES);
  await at.mill.enqueueMany(
    mails,
    Array.from({ length: COUNT }, () => ({ payload, tenant })),
  );
  reader.ready(COUNT);
  await eventually(() => expect(reader.tasks.length).toBeGreaterThanOrEqual(COUNT - UNREAD_MAX));
  expect(stalled.tasks).toEqual([]);
  for (const socket of answers) socket.resume();
  await eventually(() => expect(stalled.tasks.length + reader.tasks.length).toBe(COUNT));
  expect(stalled.tasks.length).toBeGreaterThan(0);
  expect(stalled.tasks.length).toBeLessThanOrEqual(UNREAD_MAX);
  const all = [...stalled.tasks, ...reader.tasks];
  expect(new Set(all.map((task) => tokenOf(task).taskId)).size).toBe(COUNT);
  expect(new Set(all.map(({ attempt }) => attempt))).toEqual(new Set([1]));
  for (const task of stalled.tasks) expect(await stalled.complete(task)).toBe("completed");
});
