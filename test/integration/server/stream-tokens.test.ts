import { expect, it } from "vitest";
import { ApiKeyAdmin } from "../../../src/server/index.ts";
import type { ServerEvent, WorkerEvent } from "../../../src/wire/generated/codeq/worker.ts";
import { onCleanup } from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { eventually } from "../../support/eventually.ts";
import { type CodeqWorker, codeqWorker, status } from "../../support/stream-client.ts";
import {
  complete,
  extend,
  HANDED_OUT,
  newQueue,
  RemoteHand,
  tenant,
  tokenOf,
} from "./remote-hand.ts";
import {
  acks,
  codeqAcks,
  codeqCreate,
  codeqHello,
  committing,
  create,
  hello,
  type Scene,
  scene,
  waitInCommit,
} from "./scene.ts";

it("a stream ends when its token is revoked or expires, and others go on", async () => {
  const { database, codeq, tidemill, logs } = await scene({
    server: { tokenCheckSeconds: 0.1, auth: { revocationSeconds: 0 } },
  });
  const db = engineDatabase(database.url);
  onCleanup(() => db.close());
  const admin = new ApiKeyAdmin(db);
  const grant = { tenant: "acme", scopes: ["producer"] } as const;
  const revoked = await admin.create(grant);
  const first = await codeqHello(codeq(), revoked.key.reveal());
  const third = await hello(tidemill());
  codeqCreate(first, { seq: 1n });
  await first.until(2);
  // Long enough for a create on a busy machine.
  const short = await admin.create({ ...grant, expiresSeconds: 3 });
  const second = await hello(tidemill(), { token: short.key.reveal() });
  create(second, 1n);
  await second.until(2);
  await admin.revoke(revoked.apiKey.id);
  expect(await first.ended).toEqual({
    code: status.UNAUTHENTICATED,
    details: "auth failed: the token was revoked",
  });
  expect(await second.ended).toEqual({
    code: status.UNAUTHENTICATED,
    details: "the token has expired",
  });
  expect(codeqAcks(first)).toMatchObject([{ ok: true }]);
  expect(acks(second).size).toBe(1);
  create(third, 1n);
  await third.until(2);
  expect(acks(third).size).toBe(1);
  const text = JSON.stringify(logs);
  expect(text).toContain("the token of a stream is not good any more");
  for (const { key } of [revoked, short]) expect(text).not.toContain(key.reveal().slice(-40));
});

it("what is under way is answered before the token's end ends the stream", async () => {
  const { database, tidemill, logs } = await scene({
    server: { tokenCheckSeconds: 0.1, auth: { revocationSeconds: 0 } },
  });
  const db = engineDatabase(database.url);
  onCleanup(() => db.close());
  const admin = new ApiKeyAdmin(db);
  const { key, apiKey } = await admin.create({ tenant: "acme", scopes: ["producer"] });
  const stream = await hello(tidemill(), { token: key.reveal() });
  create(stream, 1n);
  await stream.until(2);
  await waitInCommit(database);
  const session = await database.session();
  await session.query("SELECT pg_advisory_lock(42)");
  create(stream, 2n);
  await committing(database);
  await admin.revoke(apiKey.id);
  await eventually(() => {
    expect(logs.some(({ message }) => /not good any more/.test(message))).toBe(true);
  });
  await session.query("SELECT pg_advisory_unlock(42)");
  expect((await stream.ended).code).toBe(status.UNAUTHENTICATED);
  expect([...acks(stream).keys()]).toEqual([1n, 2n]);
});

type FromServer = NonNullable<ServerEvent["event"]>;
type Value<C extends FromServer["$case"]> = Extract<FromServer, { $case: C }>["value"];

/** A worker of CodeQ's stream. */
class CodeqHand {
  readonly stream: CodeqWorker;

  constructor({ server }: Pick<Scene, "server">, token: string) {
    this.stream = codeqWorker(`127.0.0.1:${server.address("worker").port}`);
    onCleanup(() => Promise.resolve(this.stream.close()));
    this.say({ $case: "hello", value: { token, workerId: "" } });
  }

  say(event: NonNullable<WorkerEvent["event"]>): void {
    this.stream.send({ event });
  }

  all<C extends FromServer["$case"]>($case: C): Value<C>[] {
    return this.stream.received.flatMap(({ event }) =>
      event?.$case === $case ? [event.value as Value<C>] : [],
    );
  }

  async has<C extends FromServer["$case"]>($case: C, count: number): Promise<Value<C>[]> {
    return await eventually(() => {
      expect(this.all($case)).toHaveLength(count);
      return this.all($case);
    });
  }

  /** Gives their ids. */
  async get(queue: string, count: number): Promise<string[]> {
    const value = { commands: [queue], leaseSeconds: 0, count: 1 };
    for (let n = 0; n < count; n += 1) this.say({ $case: "ready", value });
    return (await this.has("task", count)).map(({ task }) => task?.id ?? "");
  }

  complete(taskId: string): void {
    const value = { taskId, status: "COMPLETED", resultJson: Buffer.alloc(0), error: "" };
    this.say({ $case: "result", value });
  }
}

it("workers are answered first too, and what they run costs no attempt", async () => {
  const at = await scene({
    server: { ...HANDED_OUT, tokenCheckSeconds: 0.1, auth: { revocationSeconds: 0 } },
  });
  const { database, mill, logs } = at;
  const db = engineDatabase(database.url);
  onCleanup(() => db.close());
  const admin = new ApiKeyAdmin(db);
  const { key, apiKey } = await admin.create({ tenant, scopes: ["worker"] });
  const [theirs, ours] = [newQueue(), newQueue()];
  for (const one of [theirs, theirs, ours, ours]) await mill.enqueue(one, 1, { tenant });
  const codeq = new CodeqHand(at, key.reveal());
  const hand = await RemoteHand.at(at).hello({ token: key.reveal(), queues: [ours.name] });
  const [said = "", running = ""] = await codeq.get(theirs.name, 2);
  const [ending, kept] = [await hand.get(), await hand.get()];
  // Nobody can write how these ended until the locks are gone.
  const locker = await database.session();
  await locker.query("BEGIN");
  const lock = "SELECT FROM tidemill.tasks WHERE id = ANY($1::bigint[]) FOR UPDATE";
  await locker.query(lock, [[said, tokenOf(ending).taskId]]);
  codeq.complete(said);
  codeq.say({ $case: "heartbeat", value: { taskId: running, extendSeconds: 0 } });
  await codeq.has("heartbeatAck", 1);
  const request = hand.send([[ending, complete()]]);
  expect(await hand.act([kept, extend()])).toEqual(["running"]);
  await admin.revoke(apiKey.id);
  await eventually(() => {
    expect(logs.filter(({ message }) => /not good any more/.test(message))).toHaveLength(2);
  });
  // Too late: nothing may be said by this key any more.
  codeq.complete(running);
  hand.send([[kept, complete()]]);
  await locker.query("ROLLBACK");
  const { UNAUTHENTICATED: code } = status;
  const details = "the token was revoked";
  expect(await codeq.stream.ended).toEqual({ code, details: `auth failed: ${details}` });
  expect(await hand.stream.ended).toEqual({ code, details });
  expect(codeq.all("resultAck")).toEqual([{ taskId: said, ok: true, errorMessage: "" }]);
  const [, ack] = hand.all("actsAck");
  expect(ack).toMatchObject({ requestId: request, acks: [{ state: "completed" }] });
  // Its worker has another token, and comes back in time.
  const back = await RemoteHand.at(at).hello({ queues: [ours.name], held: [tokenOf(kept)] });
  await eventually(() => expect(back.all("renewed")).toHaveLength(1));
  expect(await back.complete(kept)).toBe("completed");
  // Nobody can come back with what CodeQ's stream had.
  await eventually(async () => {
    const { state, attempt } = await mill.tasks.get(running);
    expect([state === "running", attempt]).toEqual([false, 0]);
  });
  expect(await mill.tasks.failures(running)).toEqual([]);
});
