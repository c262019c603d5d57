import { randomUUID } from "node:crypto";
import { expect, it } from "vitest";
import { undoClaim } from "../../src/tasks/sql/claim.ts";
import { completeTasks } from "../../src/tasks/sql/finish.ts";
import {
  openClaimedPacks,
  openLostPacks,
  openPacksOfClaim,
  openWaitingPacks,
} from "../../src/tasks/sql/open-packs.ts";
import { claimPacks, completePacks, type PackAnswer, readPack } from "../../src/tasks/sql/packs.ts";
import {
  forgetClaims,
  lockDueClaims,
  lockLostTasks,
  putOnProbation,
} from "../../src/tasks/sql/reap.ts";
import { TaskAdmin } from "../../src/tasks/task-admin.ts";
import type { Racer } from "../support/interleaver.ts";
import {
  databaseOf,
  enqueueContext,
  type RaceScene,
  raceScene,
  resetPending,
  TASKS,
} from "./race-scene.ts";

/*
 * A pack of three tasks, and whoever may want it at the same time, in every order. Whatever
 * happens, each task is in one place, and what runs is in the ledger.
 */

const HOLDER = randomUUID();
const [PACK] = TASKS;
const [, MEMBER] = TASKS;

/** A pack that waits, or that runs under the claim and whose lease ends in so many seconds. */
async function resetPack(scene: RaceScene, leaseSeconds?: number): Promise<string> {
  const claimId = randomUUID();
  const isClaimed = leaseSeconds !== undefined;
  await resetPending(scene, 0);
  await scene.admin.query(
    `INSERT INTO tidemill.task_packs
            (id, last_id, lane, max_attempts, priority, tenant, queue, ids, payloads,
             claim_id, leased_by, claimed_at, lease_until)
     VALUES ($1, $2, $3, 5, 5, 'default', 'orders', $4, concat('1', chr(30), '2', chr(30), '3'),
             $5, $6, NOW(), NOW() + make_interval(secs => $7::float8))`,
    [
      PACK,
      TASKS[2],
      scene.lane,
      [...TASKS],
      isClaimed ? claimId : null,
      isClaimed ? HOLDER : null,
      leaseSeconds ?? null,
    ],
  );
  if (isClaimed) {
    await scene.admin.query(
      `INSERT INTO tidemill.task_claims (claim_id, worker_id, check_at, task_ids, pack_ids)
       VALUES ($1, $2, NOW() + make_interval(secs => $3::float8), $4, ARRAY[$5::bigint])`,
      [claimId, HOLDER, leaseSeconds, [...TASKS], PACK],
    );
  }
  return claimId;
}

const PLACES = `
  SELECT id::text AS id, place
    FROM (SELECT id, state AS place FROM tidemill.tasks
           UNION ALL
          SELECT unnest(ids), CASE WHEN claim_id IS NULL THEN 'waits' ELSE 'claimed' END
            FROM tidemill.task_packs
           UNION ALL
          SELECT id, state FROM tidemill.task_history) AS one
   ORDER BY id`;

const UNFINDABLE = `
  SELECT claim_id FROM tidemill.tasks WHERE state = 'running'
  EXCEPT SELECT claim_id FROM tidemill.task_claims
   UNION ALL
  (SELECT claim_id FROM tidemill.task_packs WHERE claim_id IS NOT NULL
   EXCEPT SELECT claim_id FROM tidemill.task_claims)`;

/** Where each task is: in one place, and to be found when its worker dies. */
async function readPlaces({ admin }: RaceScene): Promise<string> {
  const { rows } = await admin.query<{ id: string; place: string }>(PLACES);
  expect(rows.map(({ id }) => id)).toEqual([...TASKS]);
  expect((await admin.query(UNFINDABLE)).rows).toEqual([]);
  const { rows: ended } = await admin.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM tidemill.task_history",
  );
  const { rows: tally } = await admin.query<{ sum: number }>(
    "SELECT COALESCE(sum(amount), 0)::int AS sum FROM tidemill.task_tally",
  );
  expect((tally[0]?.sum ?? 0) + (ended[0]?.count ?? 0)).toBe(0);
  return rows.map(({ place }) => place).join(" ");
}

let claimId = "";

/** Whether the pack was completed as one, or its tasks as rows. */
const completeUnder =
  (claim: () => string) =>
  async (racer: Racer): Promise<boolean> => {
    const pack = { id: PACK, claimId: claim(), results: [] };
    const whole = await racer.transaction((tx) => completePacks(tx, [pack], []));
    if (whole.done.has(PACK)) return true;
    if (whole.locked.has(PACK)) return false; // It would be sent again.
    const rows = TASKS.map((id) => ({ id, generation: 1, claimId: claim(), result: "" }));
    const accepted = await racer.transaction((tx) => completeTasks(tx, rows, []));
    return accepted === undefined;
  };
const complete = completeUnder(() => claimId);

const openUnder =
  (claim: () => string) =>
  (racer: Racer): Promise<PackAnswer> =>
    racer.transaction((tx) => openClaimedPacks(tx, [{ id: PACK, claimId: claim() }]));
const open = openUnder(() => claimId);

const reap = (racer: Racer): Promise<number> =>
  racer.transaction(async (tx) => {
    const claims = await lockDueClaims(tx, 50);
    if (claims.length === 0) return 0;
    await openLostPacks(tx, claims);
    const ids = (await lockLostTasks(tx, claims)).map(({ id }) => id);
    if (ids.length > 0) await putOnProbation(tx, ids);
    await forgetClaims(tx, claims);
    return ids.length;
  });

const undo = async (racer: Racer): Promise<number> => {
  await racer.transaction((tx) => openPacksOfClaim(tx, claimId));
  return await racer.transaction((tx) => undoClaim(tx, claimId));
};

const canceller = (scene: RaceScene) => {
  const { db } = enqueueContext(scene.database);
  return (racer: Racer): Promise<string> =>
    new TaskAdmin(databaseOf(racer, db), { changes: "changes", tasks: "tasks" }).cancel(MEMBER);
};

const claim = (lane: number) => async (racer: Racer) => {
  const request = { claimId: randomUUID(), workerId: randomUUID(), leaseSeconds: 60 };
  const { packs } = await racer.transaction((tx) =>
    claimPacks(tx, request, [{ lane, floor: 0, take: 1 }]),
  );
  return packs.flatMap((text) => readPack(text).ids);
};

it("is completed or reaped, never both", async () => {
  const scene = await raceScene(2);
  const ends = await scene.interleaver.run({
    scripts: { holder: complete, reaper: reap },
    reset: async () => {
      claimId = await resetPack(scene, -1);
    },
    check: async (run) => {
      const places = await readPlaces(scene);
      expect(run.result<number>("reaper")).toBe(places.startsWith("pending") ? 3 : 0);
      expect(run.result<boolean>("holder")).toBe(places.startsWith("completed"));
      return places;
    },
  });
  expect(Object.keys(ends).sort()).toEqual([
    "completed completed completed",
    "pending pending pending",
  ]);
});

it("is completed once when it is opened meanwhile, by its worker or for a cancel", async () => {
  const scene = await raceScene(3);
  const ends = await scene.interleaver.run({
    scripts: { holder: complete, opener: open, canceller: canceller(scene) },
    sample: { count: 100, seed: 4711 },
    reset: async () => {
      claimId = await resetPack(scene, 60);
    },
    check: async (run) => {
      const places = await readPlaces(scene);
      expect(run.result<boolean>("holder")).toBe(places === "completed completed completed");
      return places;
    },
  });
  expect(Object.keys(ends).sort()).toEqual([
    "completed completed completed",
    "running running running",
  ]);
});

it("is its newest claim's alone when a crash of the server took another one back", async () => {
  const scene = await raceScene(3);
  const takenBack = randomUUID();
  await scene.interleaver.run({
    scripts: {
      late: completeUnder(() => takenBack),
      opener: openUnder(() => takenBack),
      holder: complete,
    },
    reset: async () => {
      claimId = await resetPack(scene, 60);
    },
    check: async (run) => {
      expect(run.result("late")).toBe(false);
      expect(run.result("opener")).toEqual({ done: new Set(), locked: new Set() });
      expect(run.result("holder")).toBe(true);
      return await readPlaces(scene);
    },
  });
});

it("is claimed by one, or opened, never both", async () => {
  const scene = await raceScene(3);
  const { lane } = scene;
  const opener = (racer: Racer) =>
    racer.transaction((tx) => openWaitingPacks(tx, { lane, floor: 0, take: 1 }));
  const ends = await scene.interleaver.run({
    scripts: { first: claim(lane), second: claim(lane), opener },
    reset: () => resetPack(scene),
    check: async (run) => {
      const claimed = ["first", "second"].flatMap((one) => run.result<string[]>(one));
      const { count } = run.result<{ count: number }>("opener");
      const places = await readPlaces(scene);
      expect([claimed, count]).toEqual(
        places === "claimed claimed claimed" ? [[...TASKS], 0] : [[], 1],
      );
      return places;
    },
  });
  expect(Object.keys(ends).sort()).toEqual(["claimed claimed claimed", "pending pending pending"]);
});

it("has one task cancelled while it is claimed: that never runs, or is told", async () => {
  const scene = await raceScene(2);
  const ends = await scene.interleaver.run({
    scripts: { claimer: claim(scene.lane), canceller: canceller(scene) },
    reset: () => resetPack(scene),
    check: async (run) => {
      const claimed = run.result<string[]>("claimer");
      expect(run.result("canceller")).toBe(claimed.length > 0 ? "cancelling" : "cancelled");
      return await readPlaces(scene);
    },
  });
  expect(Object.keys(ends).sort()).toEqual([
    "pending cancelled pending",
    "running running running",
  ]);
});

it("is given back whole when its claim is undone, whoever opens or reaps it", async () => {
  const scene = await raceScene(3);
  const ends = await scene.interleaver.run({
    scripts: { undoer: undo, reaper: reap, opener: open },
    sample: { count: 100, seed: 4711 },
    reset: async () => {
      claimId = await resetPack(scene, -1);
    },
    check: async (run) => {
      const places = await readPlaces(scene);
      const reaped = run.result<number>("reaper");
      expect(run.result<number>("undoer") + reaped).toBe(3);
      return `${places}, ${reaped > 0 ? "reaped" : "undone"}`;
    },
  });
  expect(Object.keys(ends).sort()).toEqual([
    "pending pending pending, reaped",
    "pending pending pending, undone",
  ]);
});
