import { beforeEach, expect, it } from "vitest";
import { queue, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { cli, STEADY } from "./cli.ts";
import { pipedCli } from "./piped.ts";
import { expectAllRefused, expectRefused, type Refusal } from "./refused.ts";

const mails = queue<{ readonly to: string }>("mails", { maxAttempts: 1 });

let database: TestDatabase;
let mill: Tidemill;
let ids: string[];

/** Three letters that died, and nobody who would handle them. */
beforeEach(async () => {
  database = await testDatabase();
  mill = await database.connect();
  const handler = mails.handle(() => {
    throw new Error("no such mailbox");
  });
  const worker = await mill.startWorker({ ...STEADY, handlers: [handler] });
  const tasks = await mill.enqueueMany(mails, [
    { payload: { to: "a" }, kind: "welcome" },
    { payload: { to: "b" }, partitionKey: "k" },
    { payload: { to: "c" }, tenant: "acme" },
  ]);
  ids = tasks.map((task) => task.id);
  await eventually(async () => expect(await mill.deadLetters.list()).toHaveLength(3));
  await worker.stop();
});

async function remaining(): Promise<string[]> {
  return (await mill.deadLetters.list()).map((one) => one.id).toReversed();
}

it("dead list shows the newest first, and only what is asked for", async () => {
  const shown = await cli(database.url, "dead", "list");
  expect(shown).toMatch(/^ +TASK +QUEUE +KIND +KEY .* CAUSE +REASON\n/);
  expect(shown).toMatch(new RegExp(`${ids[0]} +mails +welcome .*exhausted +no such mailbox\n`));
  const list = async (...args: string[]): Promise<unknown> =>
    JSON.parse(await cli(database.url, "dead", "list", "--json", ...args));
  expect(await list("--queue", "mails", "--key", "k")).toMatchObject([{ id: ids[1] }]);
  expect(await list("--tenant", "acme")).toMatchObject([{ id: ids[2], payload: { to: "c" } }]);
  expect(await list("--before", ids[1] ?? "", "--limit", "5")).toMatchObject([{ id: ids[0] }]);
});

it("redrive runs again what is named, and what a filter finds", async () => {
  const [first = "", second = ""] = ids;
  const redrive = async (...args: string[]): Promise<string> =>
    await cli(database.url, "dead", "redrive", "--yes", ...args);
  expect(await redrive(first, "999999")).toBe(
    "1 dead letter will run again; 1 of the ids named no such dead letter.\n",
  );
  expect(await mill.tasks.get(first)).toMatchObject({ state: "pending", attempt: 0 });
  expect(await redrive("--kind", "nothing")).toBe("0 dead letters will run again.\n");
  expect(JSON.parse(await redrive("--queue", "mails", "--key", "k", "--json"))).toEqual({
    redriven: 1,
  });
  expect(await mill.tasks.get(second)).toMatchObject({ state: "pending" });
  expect(await redrive("--all")).toBe("1 dead letter will run again.\n");
  expect(await remaining()).toEqual([]);
});

it("purge deletes for good what is meant, and nothing else", async () => {
  const [first = "", second = ""] = ids;
  const purge = async (...args: string[]): Promise<string> =>
    await cli(database.url, "dead", "purge", "--yes", ...args);
  expect(await purge("--tenant", "acme")).toBe("1 dead letter deleted.\n");
  expect(await remaining()).toEqual([first, second]);
  expect(await purge("--cause", "worker_lost")).toBe("0 dead letters deleted.\n");
  expect(JSON.parse(await purge("--queue", "mails", "--json"))).toEqual({ purged: 2 });
  expect(await remaining()).toEqual([]);
});

it("edit replaces the payload of one", async () => {
  const [first = "", second = ""] = ids;
  expect(await cli(database.url, "dead", "edit", first, '{"to":"x"}')).toBe(
    `Dead letter ${first} has a new payload. To run it: tidemill dead redrive ${first}\n`,
  );
  await pipedCli(database.url, '{"to":"y"}', "dead", "edit", second, "-");
  expect(await mill.deadLetters.list()).toMatchObject([
    { payload: { to: "c" } },
    { payload: { to: "y" } },
    { payload: { to: "x" } },
  ]);
  const edit = ["dead", "edit"];
  await expectRefused(database, [...edit, first, "{"], { code: 2, says: /payload is not JSON/ });
  await expectRefused(database, [...edit, "999999", "1"], { code: 1, says: /no dead letter/ });
});

it("redrive and purge want to know which, and a confirmation", async () => {
  const [first = ""] = ids;
  const refusals: Refusal[] = [
    [["redrive", "--yes"], 2, /which dead letters\? Name ids, --queue, .*, or say --all/],
    [["redrive", "--all", "--queue", "mails", "--yes"], 2, /--all means every dead letter/],
    [["redrive", "--all"], 2, /every dead letter \(3 now\).*add --yes/],
    [["redrive", "--queue", "mials", "--yes"], 1, /no queue "mials"; registered are "mails"/],
    [["redrive", "--cause", "tired", "--yes"], 2, /Allowed choices are attempts_exhausted/],
    [["redrive", "999999", "--yes"], 1, /no dead letter 999999; "tidemill dead list"/],
    [["purge", "--yes"], 2, /which dead letters\?/],
    [["purge", "--queue", "mails"], 2, /deletes every dead letter of queue mails \(3 now\).*--yes/],
    [["purge", first], 2, new RegExp(`deletes dead letter ${first} for good.*add --yes`)],
  ];
  await expectAllRefused(
    database,
    refusals.map(([args, code, says]) => [["dead", ...args], code, says]),
  );
});
