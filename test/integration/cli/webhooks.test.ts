import { beforeEach, expect, it } from "vitest";
import { queue, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { cli } from "./cli.ts";
import { expectAllRefused, expectRefused, type Refusal } from "./refused.ts";

const mails = queue("mails");
const SECRET = /^whsec_[A-Za-z0-9+/]{43}=$/;
const URL = "https://hooks.example.org/tasks";

let database: TestDatabase;
let mill: Tidemill;

beforeEach(async () => {
  database = await testDatabase();
  mill = await database.connect();
});

async function webhook(...args: string[]): Promise<string> {
  return await cli(database.url, "webhook", ...args);
}

it("an endpoint is made, changed, rotated and removed", async () => {
  expect(await webhook("list")).toMatch(/^No endpoint\. To make one: tidemill webhook put/);
  const made = await webhook("put", "billing", "--url", URL, "--description", "bills");
  const [secret = "", told] = made.split("\n");
  expect(secret).toMatch(SECRET);
  expect(told).toBe("Endpoint billing is made.");
  const listed = await webhook("list");
  expect(listed).toMatch(/billing +https:\/\/hooks\.example\.org\/tasks +standard +active +never/);
  expect(listed).not.toContain(secret);
  expect(await webhook("put", "billing", "--url", URL, "--disable")).toBe(
    "Endpoint billing is as given, and is disabled.\n",
  );
  expect(await webhook("list")).toMatch(/Disabled: billing since .*\n +a person disabled it/);
  expect(JSON.parse(await webhook("put", "billing", "--url", URL, "--enable", "--json"))).toEqual(
    expect.not.objectContaining({ secret: expect.anything(), disabledAt: expect.anything() }),
  );

  const [next = "", until] = (await webhook("rotate", "billing", "--overlap", "7d")).split("\n");
  expect(next).toMatch(SECRET);
  expect(until).toMatch(
    /^Endpoint billing has a new secret; the old one signs, too, until .*in 7 d/,
  );
  expect(await webhook("secret", "billing")).toBe(`${next}\n${secret}\n`);
  expect(await webhook("rotate", "billing", "--overlap", "none")).toMatch(/the old one has ended/);
  await expectRefused(database, ["webhook", "remove", "billing"], {
    code: 2,
    says: /forgets endpoint billing \(https.*--yes/,
  });
  expect(await webhook("remove", "billing", "--yes")).toBe("Endpoint billing is removed.\n");
});

it("deliveries are shown and sent again", async () => {
  const { id: task } = await mill.enqueue(mails, 1, { webhook: URL });
  await mill.tasks.cancel(task);
  await database.pool.query(
    `WITH dead AS (
       UPDATE tidemill.webhook_deliveries
          SET state = 'dead', cause = 'gone', ended_at = NOW(), last_status = 410,
              last_error = 'the receiver answered 410', attempt = 1
       RETURNING number)
     INSERT INTO tidemill.webhook_attempts
            (delivery, generation, attempt, status, duration_ms, answer)
     SELECT number, 1, 1, 410, 12, 'moved away' FROM dead`,
  );
  const [delivery] = await mill.webhooks.deliveries("default");
  const id = delivery?.id ?? "";
  expect(await webhook("deliveries", "--state", "dead")).toMatch(
    new RegExp(`${id} +${task}  task.cancelled  ${URL} +dead +1 .*the receiver answered 410`),
  );
  expect(await webhook("deliveries", id)).toMatch(/\n +1 +\S+Z \(.*\) +410 +- +12 ms +moved away/);
  expect(JSON.parse(await webhook("deliveries", "--task", task, "--json"))).toHaveLength(1);
  expect(await webhook("deliveries", "--tenant", "acme")).toBe("No delivery.\n");
  const redeliver = ["webhook", "redeliver", "--all"];
  await expectRefused(database, redeliver, { code: 2, says: /sends every dead delivery.*--yes/ });
  expect(await webhook("redeliver", "--all", "--yes")).toBe("1 message will be sent again.\n");
  expect(JSON.parse(await webhook("redeliver", id, "--yes", "--json"))).toEqual({ redelivered: 1 });
  expect((await mill.webhooks.deliveries("default"))[0]).toMatchObject({ state: "pending" });
});

it("what makes no sense is refused", async () => {
  const none = "00000000-0000-4000-8000-000000000000";
  const refusals: Refusal[] = [
    [["webhook", "put", "a"], 1, /url must be a text/],
    [["webhook", "put", "default", "--url", URL], 1, /"default" has no address/],
    [
      ["webhook", "put", "a", "--url", URL, "--secret-file", "/nowhere"],
      2,
      /secret cannot be read/,
    ],
    [["webhook", "put", "a", "--enable", "--disable"], 2, /cannot be used with/],
    [["webhook", "rotate", "a"], 1, /no webhook endpoint "a" of this tenant/],
    [["webhook", "rotate", "default", "--overlap", "soon"], 2, /90d, 12h, 30m/],
    [["webhook", "deliveries", "x"], 2, /id of a delivery/],
    [["webhook", "redeliver", "--yes"], 2, /which deliveries/],
    [["webhook", "redeliver", none, "--all", "--yes"], 2, /not both/],
    [["webhook", "redeliver", none, "--yes"], 1, /no delivery .* that could be sent again/],
  ];
  await expectAllRefused(database, refusals);
});
