import { inspect } from "node:util";
import { beforeEach, describe, expect, it } from "vitest";
import { NotFoundError, UnauthenticatedError, UnavailableError } from "../../../src/base/errors.ts";
import { Supervisor } from "../../../src/base/supervisor.ts";
import type { Database, Queryable } from "../../../src/db/database.ts";
import { ApiKeyAdmin, type ApiKeyOptions } from "../../../src/server/auth/api-key-admin.ts";
import { type Auth, createAuth } from "../../../src/server/auth/create.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { eventually } from "../../support/eventually.ts";
import { ManualClock, settle } from "../../support/manual-clock.ts";

const PRODUCER: ApiKeyOptions = { tenant: "acme", scopes: ["producer"] };

let database: TestDatabase;
let db: Database;
let admin: ApiKeyAdmin;
let clock: ManualClock;
let lookups: (readonly string[])[];
let writes: (readonly string[])[];
let auth: Auth;

/** What one server has: a memory of its own, and a record of what it asked of the database. */
function server(): Auth {
  const counted: Queryable = {
    query: async (statement, values = []) => {
      if (statement.name === "api_keys_look_up") lookups.push(values[0] as string[]);
      if (statement.name === "api_keys_used") writes.push(values[0] as string[]);
      return await db.query(statement, values);
    },
  };
  return createAuth({}, { db: counted, clock });
}

beforeEach(async () => {
  database = await testDatabase();
  db = engineDatabase(database.url);
  onCleanup(() => db.close());
  admin = new ApiKeyAdmin(db);
  clock = new ManualClock();
  lookups = [];
  writes = [];
  auth = server();
});

const authenticate = (bearer: string) => auth.authenticator.authenticate(bearer);

async function refusal(bearer: string): Promise<UnauthenticatedError> {
  const found = await authenticate(bearer).catch((error: unknown) => error);
  expect(found).toBeInstanceOf(UnauthenticatedError);
  return found as UnauthenticatedError;
}

async function newKey(options: Partial<ApiKeyOptions> = {}) {
  const { apiKey, key } = await admin.create({ ...PRODUCER, ...options });
  return { id: apiKey.id, text: key.reveal(), apiKey };
}

describe("an API key", () => {
  it("says who is calling", async () => {
    const { id, text } = await newKey({
      scopes: ["worker", "read"],
      queues: ["mails", "bills"],
      name: "mail robot",
      expiresSeconds: 3_600,
    });
    expect(text).toMatch(new RegExp(`^tmk_${id}_[0-9a-f]{64}$`));
    const [key] = await admin.list();
    expect(await authenticate(text)).toEqual({
      tenant: "acme",
      scopes: new Set(["worker", "read"]),
      queues: new Set(["mails", "bills"]),
      subject: "mail robot",
      expiresAt: key?.expiresAt,
      tokenId: `key:${id}`,
    });
    const plain = await newKey();
    expect(await authenticate(plain.text)).toMatchObject({
      queues: "all",
      subject: plain.id,
      expiresAt: "never",
    });
  });

  it("is kept as a hash only", async () => {
    const { text, apiKey } = await newKey({ name: "one" });
    const { rows } = await database.pool.query("SELECT * FROM tidemill.api_keys");
    const secret = text.slice(-64);
    const stored = JSON.stringify(rows) + (rows[0] as { hash: Buffer }).hash.toString("hex");
    for (const place of [stored, inspect(apiKey), JSON.stringify(await admin.list())]) {
      expect(place).not.toContain(secret);
    }
    const { key } = await admin.create(PRODUCER);
    expect(JSON.stringify({ key })).toBe('{"key":"[secret]"}');
  });

  it("is refused with any other character in it, and nobody is told why", async () => {
    const { text } = await newKey();
    const other = await newKey();
    const wrong = [
      `${text.slice(0, -1)}${text.endsWith("0") ? "1" : "0"}`,
      `${text.slice(0, 21)}${other.text.slice(21)}`,
      text.slice(0, -1),
      `${text}0`,
      text.toUpperCase(),
      text.replace("tmk_", "tmk_ "),
      `tmk_${"0".repeat(16)}_${"0".repeat(64)}`,
      "tmk_",
      "tmk_' OR TRUE --",
    ];
    for (const bearer of wrong) {
      const error = await refusal(bearer);
      expect(error.message).toBe("the token is not valid");
      expect(inspect(error) + error.detail).not.toContain(bearer.slice(21) || "never");
    }
    expect(await authenticate(text)).toMatchObject({ tenant: "acme" });
  });

  it("is refused when it has expired by the database's clock, also from memory", async () => {
    const { id, text } = await newKey({ expiresSeconds: 60 });
    const expiring = (seconds: number) =>
      database.pool.query(
        `UPDATE tidemill.api_keys
            SET created_at = NOW() - INTERVAL '1 hour',
                expires_at = NOW() + make_interval(secs => $2) WHERE id = $1`,
        [id, seconds],
      );
    await expiring(1.5);
    expect(await authenticate(text)).toMatchObject({ tenant: "acme" });
    clock.advance(1_499);
    expect(lookups).toHaveLength(1);
    clock.advance(1);
    expect(await refusal(text)).toMatchObject({
      reason: "expired",
      message: "the token has expired",
    });
    expect(lookups).toHaveLength(1);
    await expiring(-1);
    clock.advance(2_000);
    expect((await refusal(text)).reason).toBe("expired");
    expect((await admin.get(id)).state).toBe("expired");
  });

  it("that is revoked while a server remembers it is refused within two seconds", async () => {
    const { id, text } = await newKey();
    expect(await authenticate(text)).toMatchObject({ tenant: "acme" });
    await admin.revoke(id);
    clock.advance(1_999);
    expect(await authenticate(text)).toMatchObject({ tenant: "acme" });
    clock.advance(1);
    expect(await refusal(text)).toMatchObject({
      reason: "revoked",
      message: "the token was revoked",
    });
    await expect(server().authenticator.authenticate(text)).rejects.toThrow(UnauthenticatedError);
    // Whoever has only its id does not learn that it was revoked.
    const guess = `tmk_${id}_${"0".repeat(64)}`;
    expect((await refusal(guess)).message).toBe("the token is not valid");
  });

  it("is looked up once for many calls, and those of one moment together", async () => {
    const texts = await Promise.all(Array.from({ length: 20 }, async () => (await newKey()).text));
    const callers = texts.flatMap((text) => [text, text, text].map(authenticate));
    expect(await Promise.all(callers)).toHaveLength(60);
    expect(lookups.length).toBeLessThanOrEqual(2);
    expect(lookups.flat()).toHaveLength(20);
  });

  it("that nobody made costs one lookup at a time, however many are invented", async () => {
    const { text } = await newKey();
    const invented = Array.from({ length: 900 }, (_, n) => {
      const id = n.toString(16).padStart(16, "0");
      return `tmk_${id}_${"0".repeat(64)}`;
    });
    const flood = Promise.allSettled([...invented, ...invented].map(authenticate));
    expect(await authenticate(text)).toMatchObject({ tenant: "acme" });
    expect((await flood).every(({ status }) => status === "rejected")).toBe(true);
    expect(lookups.length).toBeLessThanOrEqual(2);
    await Promise.allSettled(invented.map(authenticate));
    expect(lookups.length).toBeLessThanOrEqual(2);
  });

  it("is not refused but unavailable while the database is away", async () => {
    const { text } = await newKey();
    await db.close();
    const error: unknown = await authenticate(text).catch((thrown: unknown) => thrown);
    expect(error).not.toBeInstanceOf(UnauthenticatedError);
    const many = Array.from({ length: 1_001 }, (_, n) => n.toString(16).padStart(16, "0"));
    const all = await Promise.allSettled(
      many.map((id) => authenticate(`tmk_${id}_${"0".repeat(64)}`)),
    );
    const last = all.at(-1) as PromiseRejectedResult;
    expect(last.reason).toBeInstanceOf(UnavailableError);
  });
});

describe("the administration of API keys", () => {
  it("keeps tenants apart", async () => {
    const mine = await newKey();
    const theirs = await newKey({ tenant: "globex" });
    expect((await admin.list({ tenant: "acme" })).map(({ id }) => id)).toEqual([mine.id]);
    await expect(admin.revoke(theirs.id, { tenant: "acme" })).rejects.toThrow(NotFoundError);
    await expect(admin.get(theirs.id, { tenant: "acme" })).rejects.toThrow(NotFoundError);
    expect(await authenticate(theirs.text)).toMatchObject({ tenant: "globex" });
    expect((await admin.revoke(theirs.id, { tenant: "globex" })).state).toBe("revoked");
  });

  it("revokes once, by id or by the key itself", async () => {
    const { id, text } = await newKey();
    expect(await admin.revoke(text)).toMatchObject({ id, state: "revoked" });
    await expect(admin.revoke(id)).rejects.toThrow(`API key ${id} was revoked at 2`);
    const error = await admin.revoke(text.slice(0, -1)).catch((thrown: unknown) => thrown);
    expect(inspect(error)).toContain("16 characters");
    expect(inspect(error)).not.toContain(text.slice(21, 40));
  });

  it.each([
    [{ tenant: "" }, /needs a tenant/],
    [{ tenant: "ac\u0000me" }, /needs a tenant/],
    [{ scopes: [] }, /needs at least one scope/],
    [{ scopes: ["root"] }, /"root" is not a scope/],
    [{ queues: [] }, /for no queue can do nothing/],
    [{ queues: [" "] }, /queues must be "all" or a list/],
    [{ name: "" }, /the name of an API key/],
    [{ expiresSeconds: 0 }, /expires after a second at least/],
    [{ expiresSeconds: Number.NaN }, /expires after a second at least/],
    [{ expiresSeconds: 1e12 }, /ten years at most/],
    [{ expires: 1 }, /unknown API key option "expires"/],
  ])("refuses a key with %j", async (changes, says) => {
    await expect(admin.create({ ...PRODUCER, ...changes } as ApiKeyOptions)).rejects.toThrow(says);
    expect(await admin.list()).toEqual([]);
  });

  it("shows when a key was used, written at most once a minute", async () => {
    const { id, text } = await newKey();
    const unused = await newKey();
    const supervisor = new Supervisor(auth.services);
    onCleanup(() => supervisor.stop());
    const usedAt = async () => (await admin.get(id)).lastUsedAt;
    await authenticate(text);
    await settle();
    clock.advance(5_000);
    const first = await eventually(async () => {
      const at = await usedAt();
      if (at === undefined) throw new Error("not written yet");
      return at;
    });
    expect((await admin.get(unused.id)).lastUsedAt).toBeUndefined();
    for (let second = 0; second < 50; second += 5) {
      await authenticate(text);
      clock.advance(5_000);
      await settle();
    }
    expect(await usedAt()).toEqual(first);
    expect(writes).toEqual([[id]]);
    await database.pool.query(
      "UPDATE tidemill.api_keys SET last_used_at = NOW() - INTERVAL '2 minutes'",
    );
    clock.advance(10_000);
    await authenticate(text);
    await supervisor.stop(); // What was noted last is written before it ends.
    expect((await usedAt())?.getTime()).toBeGreaterThanOrEqual(first.getTime());
  });
});
