import { beforeEach, expect, it } from "vitest";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { cli } from "./cli.ts";
import { expectAllRefused, expectRefused, type Refusal } from "./refused.ts";

const URL = "https://hooks.example.org/work";
const ID = "[0-9a-f-]{36}";
const NOBODY = "0198c5b2-7d4c-7000-8000-000000000000";

let database: TestDatabase;

beforeEach(async () => {
  database = await testDatabase();
});

async function subscription(...args: string[]): Promise<string> {
  return await cli(database.url, "subscription", ...args);
}

it("a subscription is made, shown, renewed and removed", async () => {
  expect(await subscription("list")).toMatch(/^No subscription\. To make one: tidemill subscr/);
  const acme = ["--tenant", "acme"];
  const made = await subscription("add", URL, "--queues", "b,a", "--ttl", "600", ...acme);
  const [secret = "", told = ""] = made.split("\n");
  expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  const ends = new RegExp(`^Subscription (${ID}) ends .*\\(in 10 min\\), unless`);
  const [, id = ""] = ends.exec(told) ?? [];
  const group = ["--mode", "group", "--group", "pool", "--min-interval", "30"];
  const json = await subscription("add", URL, ...group, "--tenant", "acme", "--json");
  expect(JSON.parse(json)).toMatchObject({ mode: "group", group: "pool", minIntervalSeconds: 30 });

  const listed = await subscription("list", "--tenant", "acme");
  expect(listed).toMatch(new RegExp(`${id} +${URL} +a,b +fanout +5 s +in 10 min +never +active`));
  expect(listed).toMatch(/\(all\) +group pool +30 s +in 5 min/);
  expect(listed).not.toContain(secret);
  await database.pool.query(
    `UPDATE tidemill.subscriptions
        SET failures = 7, failing_since = NOW(), last_error = 'the receiver answered 500'
      WHERE id = $1`,
    [id],
  );
  const failing = await subscription("list", "--tenant", "acme");
  expect(failing).toMatch(/failing\n(.|\n)*Failing: .*\n  7 calls in a row: the receiver answered/);
  expect(JSON.parse(await subscription("list", "--json"))).toEqual([]);

  expect(await subscription("renew", id, "--ttl", "14400", "--tenant", "acme")).toMatch(
    new RegExp(`^Subscription ${id} ends .*in 4 h`),
  );
  await expectRefused(database, ["subscription", "remove", id, "--tenant", "acme"], {
    code: 2,
    says: /ends subscription .*hooks\.example\.org.*--yes/,
  });
  expect(await subscription("remove", id, "--yes", "--tenant", "acme")).toBe(
    `Subscription ${id} is removed.\n`,
  );
});

it("what makes no sense is refused", async () => {
  const refusals: Refusal[] = [
    [["subscription", "add", "nowhere"], 1, /must begin with https/],
    [["subscription", "add", URL, "--mode", "some"], 2, /fanout, group, hash/],
    [["subscription", "add", URL, "--mode", "group"], 1, /names its group/],
    [["subscription", "add", URL, "--ttl", "0"], 2, /ttlSeconds must be/],
    [["subscription", "renew", "x"], 2, /It must be an id/],
    [["subscription", "renew", NOBODY], 1, /or it has ended/],
    [["subscription", "remove", NOBODY, "--yes"], 1, /or it has ended/],
  ];
  await expectAllRefused(database, refusals);
});
