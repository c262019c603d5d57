import { randomUUID } from "node:crypto";
import { expect, it } from "vitest";
import { claimKeyedPacks, keyedPackLane, type Obstacle } from "../../src/tasks/sql/key-packs.ts";
import { findForeignLanes } from "../../src/tasks/sql/keys.ts";
import { openPackOf } from "../../src/tasks/sql/open-packs.ts";
import { readPack } from "../../src/tasks/sql/packs.ts";
import type { Racer } from "../support/interleaver.ts";
import {
  type Claimed,
  claimKeyIn,
  KEY,
  KEY_BUCKETS,
  KEY_LANE,
  type RaceScene,
  raceScene,
  resetOwner,
  resetPending,
  TASKS,
} from "./race-scene.ts";

/*
 * Tasks of one key, of which some wait in packs and some as rows, and whoever may want them at the
 * same time, in every order. Whatever happens, none is claimed while one before it waits.
 */

const OWNER = randomUUID();
const [FIRST, SECOND, THIRD] = TASKS;

/** Of one task each. */
async function addPacks({ admin }: RaceScene, ids: readonly string[]): Promise<void> {
  await admin.query(
    `INSERT INTO tidemill.task_packs
            (id, last_id, lane, max_attempts, priority, tenant, queue, ids, payloads, keys, buckets,
             bucket_set)
     SELECT id, id, $2, 5, 5, 'default', 'orders', ARRAY[id], '1', $3, '{0}', $4::bit(360)
       FROM unnest($1::bigint[]) AS id`,
    [ids, keyedPackLane(0), KEY, KEY_BUCKETS],
  );
}

/** The first so many tasks are rows, the others packs; all of one key, whose bucket is ours. */
async function reset(scene: RaceScene, rows: number): Promise<void> {
  await resetPending(scene, rows, KEY);
  await addPacks(scene, TASKS.slice(rows));
  await resetOwner(scene, OWNER);
}

interface ClaimedPackIds {
  readonly ids: readonly string[];
  readonly obstacle: Obstacle | null;
}

const claimPacks =
  (take: number, epoch = "1") =>
  (racer: Racer): Promise<ClaimedPackIds> =>
    racer.transaction(async (tx) => {
      const { packs, obstacle } = await claimKeyedPacks(tx, {
        keySpaceId: 0,
        baseId: 0,
        floor: 0,
        buckets: KEY_BUCKETS,
        owned: KEY_BUCKETS,
        lanes: `{${KEY_LANE}}`,
        claimId: randomUUID(),
        workerId: OWNER,
        leaseSeconds: 60,
        epoch,
        marker: null,
        take,
      });
      return { ids: packs.flatMap((text) => readPack(text).ids), obstacle };
    });

const claimRows = (racer: Racer): Promise<Claimed> => claimKeyIn(racer, OWNER, "1", 10);

/** As a cancel of the task does first. */
const openFor = (id: string) => (racer: Racer) => racer.transaction((tx) => openPackOf(tx, id));

const STATES = `
  SELECT id::text AS id, state FROM tidemill.tasks
   UNION ALL
  SELECT unnest(ids)::text, CASE WHEN claim_id IS NULL THEN 'waits' ELSE 'running' END
    FROM tidemill.task_packs
   ORDER BY id`;

/** Where each task is. What runs comes before what does not. */
async function readStates({ admin }: RaceScene): Promise<string> {
  const { rows } = await admin.query<{ id: string; state: string }>(STATES);
  expect(rows.map(({ id }) => id)).toEqual([...TASKS]);
  const running = rows.map(({ state }) => state === "running");
  expect(running).toEqual(running.toSorted((a, b) => Number(b) - Number(a)));
  return rows.map(({ state }) => state).join(" ");
}

it("a pack is not claimed before one that is opened meanwhile", async () => {
  const scene = await raceScene(2);
  const ends = await scene.interleaver.run({
    scripts: { claimer: claimPacks(3), opener: openFor(FIRST) },
    reset: () => reset(scene, 0),
    check: () => readStates(scene),
  });
  expect(Object.keys(ends).sort()).toEqual(["pending waits waits", "running running running"]);
});

it("a pack is claimed up to the one that is opened meanwhile, and not beyond", async () => {
  const scene = await raceScene(3);
  const ends = await scene.interleaver.run({
    scripts: { claimer: claimPacks(3), opener: openFor(SECOND), rows: claimRows },
    sample: { count: 150, seed: 4711 },
    reset: () => reset(scene, 0),
    check: () => readStates(scene),
  });
  expect(Object.keys(ends).sort()).toEqual([
    "running pending waits",
    "running running running",
    "running running waits",
  ]);
});

it("a pack waits for rows before it, and is claimed when its owner has them", async () => {
  const scene = await raceScene(2);
  const ends = await scene.interleaver.run({
    scripts: { claimer: claimPacks(3), rows: claimRows },
    reset: () => reset(scene, 1),
    check: async (run) => {
      const { ids, obstacle } = run.result<ClaimedPackIds>("claimer");
      expect(ids.length === 0 ? obstacle : ids).toEqual(
        ids.length === 0 ? "behind" : [SECOND, THIRD],
      );
      return await readStates(scene);
    },
  });
  expect(Object.keys(ends).sort()).toEqual(["running running running", "running waits waits"]);
});

it("a row is not claimed before a pack, opened or not", async () => {
  const scene = await raceScene(2);
  const ends = await scene.interleaver.run({
    scripts: { rows: claimRows, opener: openFor(FIRST) },
    reset: async () => {
      await resetPending(scene, 3, KEY);
      await scene.admin.query("DELETE FROM tidemill.tasks WHERE id = $1", [FIRST]);
      await addPacks(scene, [FIRST]);
      await resetOwner(scene, OWNER);
    },
    check: () => readStates(scene),
  });
  expect(Object.keys(ends).sort()).toEqual(["pending pending pending", "running running running"]);
});

it("a pack is claimed by the owner of the epoch, or by nobody when its bucket moved", async () => {
  const scene = await raceScene(2);
  const move = (racer: Racer) =>
    racer.transaction(async () => {
      await racer.client.query("UPDATE tidemill.bucket_owners SET epoch = 2, buckets = '{}'");
    });
  const ends = await scene.interleaver.run({
    scripts: { claimer: claimPacks(3), move },
    reset: () => reset(scene, 0),
    check: () => readStates(scene),
  });
  expect(Object.keys(ends).sort()).toEqual(["running running running", "waits waits waits"]);
});

it("a pack that somebody holds keeps its bucket closed to the next owner", async () => {
  const scene = await raceScene(1);
  await reset(scene, 0);
  const ends = await scene.interleaver.run({
    scripts: {
      claimer: async (racer: Racer) => {
        await claimPacks(1)(racer);
        const foreign = await findForeignLanes(racer.connection, [KEY_LANE, KEY_LANE - 1], []);
        const ours = await findForeignLanes(racer.connection, [KEY_LANE, KEY_LANE - 1], [FIRST]);
        return [[...foreign], [...ours]];
      },
    },
    reset: () => reset(scene, 0),
    check: async (run) => {
      expect(run.result("claimer")).toEqual([[KEY_LANE], []]);
      return await readStates(scene);
    },
  });
  expect(Object.keys(ends)).toEqual(["running waits waits"]);
});

it("a pack with a held key is not claimed, nor any behind it", async () => {
  const scene = await raceScene(1);
  const ends = await scene.interleaver.run({
    scripts: { claimer: claimPacks(3) },
    reset: async () => {
      await reset(scene, 0);
      await scene.admin.query(
        `INSERT INTO tidemill.key_holds (key_space_id, tenant, partition_key, lane, why)
         VALUES (0, 'default', $1, $2, 'paused')`,
        [KEY, KEY_LANE],
      );
    },
    check: async (run) => {
      expect(run.result<ClaimedPackIds>("claimer")).toEqual({ ids: [], obstacle: "held" });
      return await readStates(scene);
    },
  });
  expect(Object.keys(ends)).toEqual(["waits waits waits"]);
});
