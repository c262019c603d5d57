import { expect, it } from "vitest";
import { ApiKeyAdmin } from "../../../src/server/index.ts";
import { onCleanup } from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { eventually } from "../../support/eventually.ts";
import { status } from "../../support/stream-client.ts";
import {
  acks,
  codeqAcks,
  codeqCreate,
  codeqHello,
  committing,
  create,
  hello,
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
