import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as rest } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Tidemill } from "tidemill";
import { consumers } from "./consumers.ts";

const url = process.env["DATABASE_URL"];
await Tidemill.migrate(url);
await using mill = await Tidemill.connect(url);
await mill.transaction(async (tx) => {
  await tx.query(
    `CREATE TABLE IF NOT EXISTS handled (
       consumer TEXT, position BIGINT, worker_id UUID, PRIMARY KEY (consumer, position))`,
  );
});

const startWorker = (): ChildProcess => fork(fileURLToPath(new URL("worker.ts", import.meta.url)));

/** Waits until the running workers own this many consumers each. */
async function untilSpread(wanted: readonly number[]): Promise<void> {
  for (;;) {
    const { workers } = await mill.status();
    const owned = workers.filter((one) => one.status === "active");
    if (String(owned.map((one) => one.assigned.length)) === String(wanted)) return;
    await rest(50);
  }
}

async function appendAndWait(count: number): Promise<void> {
  const events = Array.from({ length: count }, (_, index) => ({ type: "Ticked", data: { index } }));
  const appended = await mill.append({ type: "Clock", id: "1" }, events);
  await Promise.all(consumers.map((one) => mill.waitFor(one, appended)));
}

const first = startWorker();
await untilSpread([4]);
console.log("one worker owns 4 consumers");

const second = startWorker();
await untilSpread([2, 2]);
console.log("two workers own 2 consumers each");
await appendAndWait(10);

first.kill("SIGTERM");
const [code] = (await once(first, "exit")) as [number | null];
await untilSpread([4]);
console.log(`the first worker stopped with code ${code}; the second owns 4 consumers`);
await appendAndWait(10);

second.kill("SIGTERM");
await once(second, "exit");

const { rows } = await mill.transaction((tx) =>
  tx.query(
    `SELECT count(*)::int AS handled, count(DISTINCT worker_id)::int AS workers FROM handled`,
  ),
);
console.log(JSON.stringify(rows[0]));
