import { beforeEach, expect, it } from "vitest";
import { type Consumer, consumer, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { cli, runCli, STEADY } from "./cli.ts";

let database: TestDatabase;
let mill: Tidemill;
let seen: string[];
let view: Consumer;

beforeEach(async () => {
  database = await testDatabase();
  mill = await database.connect();
  seen = [];
  view = consumer("view", {
    handle: (event) => {
      if (event.type === "Poison") throw new Error("cannot digest this");
      seen.push(event.type);
    },
  });
});

async function append(...types: string[]): Promise<{ position: bigint }> {
  const stream = { type: "Order", id: "1" };
  return await mill.append(
    stream,
    types.map((type) => ({ type })),
  );
}

it("a paused consumer handles nothing more until it is resumed", async () => {
  const other = consumer("other", { handle: () => {} });
  await mill.startWorker({ ...STEADY, consumers: [view, other] });
  await mill.waitFor(view, await append("A"));
  const paused = await cli(database.url, "consumer", "pause", "view", "--reason", "deploying");
  expect(paused).toBe("Consumer view is paused, at position 1.\n");
  // Two rounds of its neighbour: had it not stopped, it would have moved with the first.
  await mill.waitFor(other, await append("B"));
  await mill.waitFor(other, await append("C"));
  expect(seen).toEqual(["A"]);
  const listed = await cli(database.url, "consumer", "list");
  expect(listed).toMatch(/view +paused +1 +2 +- .*deploying\n/);
  const resumed = await cli(database.url, "consumer", "resume", "view");
  expect(resumed).toBe("Consumer view goes on at position 1.\n");
  await mill.waitFor(view, { position: 3n });
  expect(seen).toEqual(["A", "B", "C"]);
  const again = await cli(database.url, "consumer", "resume", "view");
  expect(again).toBe("Consumer view was not stopped at position 3.\n");
});

it("a rewound consumer handles its events again", async () => {
  await mill.startWorker({ ...STEADY, consumers: [view] });
  await mill.waitFor(view, await append("A", "B"));
  const said = await cli(database.url, "consumer", "rewind", "view", "--to", "1", "--yes");
  expect(said).toBe("Consumer view went back to 1.\n");
  await eventually(() => expect(seen).toEqual(["A", "B", "B"]));
});

it("a skip passes the poison event, keeps the reason, and the rest is handled", async () => {
  await mill.startWorker({ ...STEADY, consumers: [view], maxConsecutiveFailures: 2 });
  await append("A", "Poison", "B");
  await eventually(async () => {
    expect(await mill.listConsumers()).toMatchObject([{ state: "quarantined" }]);
  });
  const said = await cli(database.url, "consumer", "skip", "view", "--reason", "#42", "--yes");
  expect(said).toBe("Consumer view passed position 2 and goes on.\n");
  await mill.waitFor(view, { position: 3n });
  expect(seen.filter((type) => type === "B")).toEqual(["B"]);
  const { rows } = await database.pool.query(
    "SELECT action, reason FROM tidemill.operator_actions",
  );
  expect(rows).toEqual([{ action: "skip", reason: "#42" }]);
});

it("a consumer is retired once no running worker has it", async () => {
  const worker = await mill.startWorker({ ...STEADY, consumers: [view] });
  await mill.waitFor(view, await append("A"));
  const refused = await runCli(["consumer", "retire", "view", "--yes"], {
    env: { DATABASE_URL: database.url },
  });
  expect(refused).toMatchObject({ code: 1, stdout: "" });
  expect(refused.stderr).toMatch(/^tidemill: .*stop them first\n$/);
  await worker.stop();
  const said = await cli(database.url, "consumer", "retire", "view", "--yes");
  expect(said).toBe("Consumer view is retired.\n");
  expect(JSON.parse(await cli(database.url, "consumer", "list", "--json"))).toEqual([]);
});

it("a repartitioned consumer goes on where it was, in more pieces", async () => {
  await append("A");
  await mill.runToHead({ ...STEADY, consumers: [view] });
  const said = await cli(database.url, "consumer", "repartition", "view", "--partitions", "2");
  expect(said).toBe("Consumer view has 2 partition(s); start workers that say the same.\n");
  await append("B");
  await mill.runToHead({ ...STEADY, consumers: [{ ...view, partitions: 2 }] });
  expect(seen).toEqual(["A", "B"]);
  const listed = JSON.parse(await cli(database.url, "consumer", "list", "--json"));
  expect(listed).toMatchObject([
    { name: "view/0", checkpoint: "2" },
    { name: "view/1", checkpoint: "2" },
  ]);
  // A skip concerns one partition, and only the whole can be retired.
  const env = { DATABASE_URL: database.url };
  const [skip, retire] = await Promise.all([
    runCli(["consumer", "skip", "view", "--reason", "x", "--yes"], { env }),
    runCli(["consumer", "retire", "view/1", "--yes"], { env }),
  ]);
  expect([skip.code, retire.code]).toEqual([1, 1]);
  expect(skip.stderr).toMatch(/has 2 partitions; name the one to skip in, such as view\/0\n$/);
  expect(retire.stderr).toMatch(/view\/1 is one partition; name the whole consumer, view\n$/);
});
