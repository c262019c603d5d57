import { beforeEach, expect, it } from "vitest";
import { queue, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { cli } from "./cli.ts";
import { expectAllRefused, expectRefused, type Refusal } from "./refused.ts";

const mails = queue("mails");

let database: TestDatabase;
let mill: Tidemill;

beforeEach(async () => {
  database = await testDatabase();
  mill = await database.connect();
  await mill.tasks.cancel((await mill.enqueue(mails, null)).id);
});

async function schedule(...args: string[]): Promise<string> {
  return await cli(database.url, "schedule", ...args);
}

const NIGHTLY = ["nightly", "--cron", "0 3 * * *", "--queue", "mails"];

it("a schedule is added with all options, listed, and replaced only on confirmation", async () => {
  expect(await schedule("list")).toMatch(/^No schedule\. To make one: tidemill schedule add/);
  const times = ["--time-zone", "Europe/Berlin", "--catch-up", "all", "--catch-up-max", "7"];
  const task = ["--payload", '{"to":"all"}', "--kind", "digest", "--priority", "low", "--key", "k"];
  expect(await schedule("add", ...NIGHTLY, ...times, ...task)).toMatch(
    /^Schedule nightly is added; it fires at \d{4}-\S+Z \(in .*\)\.\n$/,
  );
  expect(JSON.parse(await schedule("list", "--json"))).toMatchObject([
    {
      name: "nightly",
      cron: "0 3 * * *",
      timeZone: "Europe/Berlin",
      queue: "mails",
      payload: { to: "all" },
      options: { kind: "digest", priority: "low", partitionKey: "k" },
      catchUp: "all",
      catchUpMax: 7,
    },
  ]);
  expect(await schedule("list")).toMatch(
    /nightly +default +0 3 \* \* \* +Europe\/Berlin +mails +active +2/,
  );
  await expectRefused(database, ["schedule", "add", ...NIGHTLY], {
    code: 2,
    says: /replaces schedule nightly \(0 3 \* \* \* in Europe\/Berlin, to queue mails\).*--yes/,
  });
  const replaced = JSON.parse(await schedule("add", ...NIGHTLY, "--yes", "--json"));
  expect(replaced).toMatchObject({ name: "nightly", timeZone: "UTC", payload: null });
});

it("a schedule is paused, resumed, run at once and removed", async () => {
  await schedule("add", ...NIGHTLY);
  expect(await schedule("pause", "nightly")).toBe("Schedule nightly is paused.\n");
  expect(await schedule("list")).toMatch(/nightly .* paused +when resumed /);
  const ran = await schedule("run-now", "nightly");
  const [task] = await mill.tasks.list({ state: "pending" });
  expect(ran).toBe(`Schedule nightly enqueued task ${task?.id} to queue mails.\n`);
  expect(await schedule("resume", "nightly", "--catch-up")).toMatch(
    /^Schedule nightly goes on; it fires at /,
  );
  expect(await schedule("resume", "nightly")).toMatch(/^Schedule nightly was not paused; /);
  const remove = ["schedule", "remove", "nightly"];
  await expectRefused(database, remove, { code: 2, says: /forgets schedule nightly.*add --yes/ });
  expect(await schedule("remove", "nightly", "--yes")).toBe(
    "Schedule nightly is removed; tasks that it enqueued stay.\n",
  );
  expect(JSON.parse(await schedule("list", "--json"))).toEqual([]);
});

it("what could not fire is refused", async () => {
  const add = ["schedule", "add", "x", "--queue", "mails"];
  const refusals: Refusal[] = [
    [add, 2, /'--cron <expression>' not specified/],
    [[...add, "--cron", "61 * * * *"], 1, /minutes go from 0 to 59/],
    [[...add, "--cron", "@daily", "--time-zone", "Mars"], 1, /not a known time zone/],
    [[...add, "--cron", "@daily", "--payload", "{"], 2, /the payload is not JSON/],
    [[...add, "--cron", "@daily", "--catch-up", "some"], 2, /Allowed choices are skip, once, all/],
    [["schedule", "add", "x", "--cron", "@daily", "--queue", "y"], 1, /no queue "y"/],
    [["schedule", "pause", "x"], 1, /no schedule "x"; "tidemill schedule list" names them/],
    [["schedule", "run-now", "x"], 1, /no schedule "x"/],
  ];
  await expectAllRefused(database, refusals);
});
