import { beforeEach, describe, expect, it } from "vitest";
import { queue, type Tidemill, UnavailableError } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { eventuallyDone, expectCompletedOnce } from "../../support/task-runs.ts";
import { BRISK, range, readColumn } from "../tasks/scene.ts";
import { pooledSuite } from "./pooled.ts";

const { missing, pooler, connect } = pooledSuite({ server_login_retry: "1" });

beforeEach((context) => {
  if (missing !== undefined) context.skip(missing);
});

const ORDERS = queue<number>("orders");
const KEYS = 10;

/** One task of each key, enqueued once however often that has to be tried. */
async function enqueueRound(mill: Tidemill, round: number): Promise<string[]> {
  const tasks = range(KEYS).map((n) => ({
    payload: round,
    partitionKey: `order:${n}`,
    idempotencyKey: `${n}:${round}`,
  }));
  return await eventually(async () => {
    const handles = await mill.enqueueMany(ORDERS, tasks).catch((error: unknown) => {
      expect(error).toBeInstanceOf(UnavailableError);
      throw error;
    });
    return handles.map(({ id }) => id);
  });
}

/** Keeps enqueueing until it is told to stop; the ids of all. */
function produce(mill: Tidemill): { stop: () => Promise<string[]> } {
  const over = new AbortController();
  const running = (async () => {
    const ids: string[] = [];
    for (let round = 0; !over.signal.aborted; round += 1) {
      ids.push(...(await enqueueRound(mill, round)));
    }
    return ids;
  })();
  running.catch(() => {}); // Told by stop().
  return {
    stop: async () => {
      over.abort();
      return await running;
    },
  };
}

async function pauseUntilClientsWait(): Promise<void> {
  await pooler().command("PAUSE");
  await eventually(async () => {
    const pools = (await pooler().command("SHOW POOLS")) as { cl_waiting: string }[];
    expect(pools.some((pool) => Number(pool.cl_waiting) > 2)).toBe(true);
  });
  await pooler().command("RESUME");
}

describe("tasks behind a pooler", () => {
  it.each([
    ["is restarted", () => pooler().restart()],
    ["is paused until clients wait", pauseUntilClientsWait],
  ])("are all done once and in the order of their keys when it %s", async (_, disturb) => {
    const database = await testDatabase();
    const started = new Map<string, number[]>();
    const handler = ORDERS.handle(({ payload, partitionKey = "" }) => {
      started.set(partitionKey, [...(started.get(partitionKey) ?? []), payload]);
    });
    for (const _worker of range(2)) {
      await (await connect(database)).startWorker({
        ...BRISK,
        leaderStrategy: "lease",
        dispatcherStrategy: "poll",
        dispatcherInterval: 50,
        leaseSeconds: 2, // A claim whose answer is lost is made again after this.
        handlers: [handler],
      });
    }
    const ended = async (): Promise<number> =>
      (await readColumn<number>(database, "SELECT count(*)::int FROM tidemill.task_history"))[0] ??
      0;
    const producer = produce(await connect(database));
    for (const _time of range(3)) {
      const before = await ended();
      await eventually(async () => expect(await ended()).toBeGreaterThan(before + 5 * KEYS));
      await disturb();
    }
    const ids = await producer.stop();
    await eventuallyDone(database, ids.length);
    await expectCompletedOnce(database.pool, ids);
    expect(started.size).toBe(KEYS);
    for (const payloads of started.values()) {
      // One that lost its lease may start again, and nothing behind it has started by then.
      expect(payloads).toEqual(payloads.toSorted((a, b) => a - b));
      expect(new Set(payloads).size).toBe(ids.length / KEYS);
    }
  });
});
