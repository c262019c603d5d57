import { beforeEach, expect, it } from "vitest";
import { createAuth } from "../../../src/server/auth/create.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { cli, runCli } from "./cli.ts";
import { expectAllRefused, expectRefused, type Refusal } from "./refused.ts";

let database: TestDatabase;

beforeEach(async () => {
  database = await testDatabase();
});

async function key(...args: string[]): Promise<string> {
  return await cli(database.url, "key", ...args);
}

const ACME = ["--tenant", "acme", "--scopes", "producer,read"];

it("a key is made, used, listed and revoked", async () => {
  expect(await key("list")).toMatch(/^No API key\. To make one: tidemill key create /);
  const made = await key("create", ...ACME, "--queues", "mails,bills", "--name", "shop");
  const [text = "", told] = made.split("\n");
  const [, id = ""] = /^tmk_([0-9a-f]{16})_[0-9a-f]{64}$/.exec(text) ?? [];
  expect(told).toBe(`API key ${id} of tenant acme never expires. Keep it: it is not shown again.`);
  const db = engineDatabase(database.url);
  onCleanup(() => db.close());
  const { authenticator } = createAuth({ revocationSeconds: 0 }, { db });
  expect(await authenticator.authenticate(text)).toMatchObject({
    tenant: "acme",
    scopes: new Set(["producer", "read"]),
    queues: new Set(["mails", "bills"]),
    subject: "shop",
  });
  const listed = await key("list");
  expect(listed).toMatch(
    new RegExp(`${id}  acme    shop  producer,read  mails,bills  active  \\S+ s ago +never`),
  );
  expect(listed).not.toContain(text.slice(21));
  const revoke = ["key", "revoke", id];
  const says = new RegExp(`revokes API key ${id} \\(shop\\) of tenant acme for ever.*--yes`);
  await expectRefused(database, revoke, { code: 2, says });
  expect(await key("revoke", id, "--yes")).toBe(
    `API key ${id} is revoked; running servers refuse it within seconds.\n`,
  );
  await expect(authenticator.authenticate(text)).rejects.toThrow("the token was revoked");
  expect(JSON.parse(await key("list", "--json"))).toMatchObject([
    { id, state: "revoked", revokedAt: expect.any(String) },
  ]);
});

it("a key may expire, and is one document for programs", async () => {
  const made = JSON.parse(await key("create", ...ACME, "--expires", "90d", "--json"));
  expect(made).toMatchObject({
    tenant: "acme",
    scopes: ["producer", "read"],
    queues: "all",
    state: "active",
    key: expect.stringMatching(/^tmk_/),
  });
  const days = (Date.parse(made.expiresAt) - Date.parse(made.createdAt)) / 86_400_000;
  expect(days).toBe(90);
  await key("create", "--tenant", "globex", "--scopes", "admin", "--expires", "12h");
  expect(await key("list", "--tenant", "globex")).toMatch(/globex  -     admin   all .* in 12 h/);
  expect(await key("list", "--tenant", "globex")).not.toContain("acme");
  expect(JSON.parse(await key("revoke", made.key, "--yes", "--json"))).toMatchObject({
    id: made.id,
    state: "revoked",
  });
});

it("what would make no key, or revokes none, is refused", async () => {
  const create = ["key", "create", "--tenant", "acme"];
  const scoped = [...create, "--scopes", "producer"];
  const id = "0123456789abcdef";
  const refusals: Refusal[] = [
    [create, 2, /'--scopes <scopes>' not specified/],
    [["key", "create", "--scopes", "read"], 2, /'--tenant <tenant>' not specified/],
    [[...create, "--scopes", "root"], 1, /"root" is not a scope; known are producer, worker/],
    [[...create, "--scopes", ","], 2, /words with commas between them/],
    [["key", "create", "--tenant", " ", "--scopes", "read"], 1, /needs a tenant: 1 to 200 bytes/],
    [[...scoped, "--queues", "a,,b"], 2, /words with commas between them/],
    [[...scoped, "--queues", ""], 2, /words with commas between them/],
    [[...scoped, "--expires", "soon"], 2, /days, hours or minutes: 90d, 12h, 30m/],
    [[...scoped, "--expires", "0d"], 2, /days, hours or minutes/],
    [[...scoped, "--expires", "99999d"], 1, /ten years at most/],
    [[...scoped, "--name", ""], 1, /the name of an API key/],
    [["key", "revoke", id, "--yes"], 1, /no API key 0123456789abcdef; "tidemill key list" shows/],
    [["key", "revoke", "x", "--yes"], 1, /the id of an API key is 16 characters/],
  ];
  await expectAllRefused(database, refusals);
});

it("a key that was mistyped is not repeated", async () => {
  const text = `tmk_0123456789abcdef_${"ab".repeat(31)}`;
  const env = { DATABASE_URL: database.url, TIDEMILL_DEBUG: "1" };
  const { code, stdout, stderr } = await runCli(["key", "revoke", text, "--yes"], { env });
  expect(code).toBe(1);
  expect(stdout + stderr).not.toContain("abab");
});
