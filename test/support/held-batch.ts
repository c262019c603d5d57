import { expect } from "vitest";
import type { ConnectOptions, Tidemill, Worker, WorkerOptions } from "../../src/index.ts";
import {
  appendEvents,
  createHandled,
  eventuallyOwn,
  readHandled,
  readOwners,
  readServerTime,
  waitForAll,
} from "./cluster.ts";
import { type TestDatabase, testDatabase } from "./database.ts";
import { eventually } from "./eventually.ts";
import { recording } from "./recording.ts";
import { startWorkerProcess, type WorkerProcess } from "./worker-processes.ts";

export const CONSUMERS = ["consumer-1", "consumer-2", "consumer-3", "consumer-4"];

/** The product's defaults, with heartbeats quick enough for a test. No batch may fail once. */
export const QUICK = {
  heartbeatInterval: 600,
  heartbeatTimeout: 2_000,
  maxConsecutiveFailures: 1,
} as const;

export interface HeldBatches {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  /** Is in the middle of a handler of each of its consumers. */
  readonly victim: WorkerProcess;
  readonly other: Worker;
  readonly orphans: readonly string[];
  readonly positions: bigint[];
}

export interface HeldOptions {
  /** Whether the victim leads. Defaults to false. */
  readonly leads?: boolean;
  readonly options?: Omit<WorkerOptions, "consumers" | "logger">;
  /** Of the other worker. */
  readonly logger?: WorkerOptions["logger"];
  /** How the victim reaches the database; and how the others do. */
  readonly victim?: (url: string) => Promise<{ url: string; connect?: ConnectOptions }>;
  readonly others?: (database: TestDatabase) => Promise<Tidemill>;
}

/** Two workers with two consumers each; one of them is in the middle of its batches. */
export async function holdBatches(how: HeldOptions): Promise<HeldBatches> {
  const database = await testDatabase();
  await createHandled(database);
  const { pool } = database;
  const mill = (await how.others?.(database)) ?? (await database.connect());
  const options = { ...QUICK, ...how.options };
  const consumers = CONSUMERS.map((name) => recording(name));
  const logger = how.logger === undefined ? {} : { logger: how.logger };
  const startOther = () => mill.startWorker({ ...options, ...logger, consumers });
  const startVictim = async () => {
    const { url, connect = {} } = (await how.victim?.(database.url)) ?? { url: database.url };
    return await startWorkerProcess({ url, connect, consumers: CONSUMERS, options, holds: "Held" });
  };
  const leads = async (one: { readonly id: string }) =>
    await eventually(async () => {
      const { rows } = await pool.query("SELECT leader_id FROM tidemill.leader_term");
      expect(rows).toEqual([{ leader_id: one.id }]);
    });
  let [victim, other]: [WorkerProcess | undefined, Worker | undefined] = [undefined, undefined];
  if (how.leads === true) await leads((victim = await startVictim()));
  else await leads((other = await startOther()));
  victim ??= await startVictim();
  other ??= await startOther();
  await eventuallyOwn(pool, [
    [victim, 2],
    [other, 2],
  ]);
  const positions = await appendEvents(mill, 1);
  await waitForAll(mill, CONSUMERS, positions[0]!);
  const owners = await readOwners(pool);
  const orphans = CONSUMERS.filter((name) => owners.get(name) === victim.id);
  const { position } = await mill.append({ type: "Order", id: "held" }, [{ type: "Held" }]);
  positions.push(position);
  await eventually(() =>
    expect(victim.said.filter((event) => event === "holding")).toHaveLength(orphans.length),
  );
  return { database, mill, victim, other, orphans, positions };
}

/** Within how long after `strike` the other worker goes on with all that the victim had. */
export async function goneOnAfterMs(held: HeldBatches, strike: () => void): Promise<number> {
  const { database, mill, other, orphans, positions } = held;
  const since = await readServerTime(database.pool);
  strike();
  const [next] = await appendEvents(mill, 1);
  positions.push(next!);
  return await eventually(async () => {
    const rows = await readHandled(database.pool);
    const times = orphans.map((name) => {
      const row = rows.find((one) => one.consumer === name && one.position === next);
      if (row === undefined) throw new Error(`nobody has gone on with ${name}`);
      expect(row.worker).toBe(other.id);
      return row.at.getTime() - since.getTime();
    });
    return Math.max(...times);
  });
}
