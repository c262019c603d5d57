import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { writeBucketOwner } from "../../src/tasks/sql/bucket-owners.ts";
import { completeTasks, type Ended, putBackTasks } from "../../src/tasks/sql/finish.ts";
import { findForeignLanes, readOwnedBuckets } from "../../src/tasks/sql/keys.ts";
import { freeLostLimits, type Taken, takeLimits } from "../../src/tasks/sql/limits.ts";
import { pauseQueue } from "../../src/tasks/sql/queue-admin.ts";
import {
  forgetClaims,
  lockDueClaims,
  lockLostTasks,
  putOnProbation,
} from "../../src/tasks/sql/reap.ts";
import type { LeaseToken } from "../../src/tasks/task.ts";
import { TaskAdmin } from "../../src/tasks/task-admin.ts";
import { testDatabase } from "../support/database.ts";
import { type Ends, Interleaver, type Racer, type Run } from "../support/interleaver.ts";
import {
  type Claimed,
  claimIn,
  claimKeyIn,
  databaseOf,
  enqueueContext,
  KEY,
  KEY_LANE,
  type Manner,
  type RaceScene,
  raceScene,
  readFacts,
  readHolders,
  resetOwner,
  resetPending,
  resetRunning,
  TASK,
} from "./race-scene.ts";

/*
 * The statements of tasks that meet in practice, in every order in which they can. Each is in a
 * transaction of its own, so that others come before it, between it and its commit, and after it.
 */

describe("the interleaver", () => {
  const count = async (lock: string): Promise<Ends> => {
    const database = await testDatabase();
    await database.pool.query("CREATE TABLE counter (n INT)");
    const interleaver = await Interleaver.open(database, 2);
    const increment = (racer: Racer): Promise<void> =>
      racer.transaction(async () => {
        const { rows } = await racer.client.query<{ n: number }>(`SELECT n FROM counter ${lock}`);
        await racer.client.query("UPDATE counter SET n = $1", [(rows[0]?.n ?? 0) + 1]);
      });
    return await interleaver.run({
      scripts: { first: increment, second: increment },
      reset: () => database.pool.query("DELETE FROM counter; INSERT INTO counter VALUES (0)"),
      check: async () => {
        const { rows } = await database.pool.query<{ n: number }>("SELECT n FROM counter");
        return rows[0]?.n === 2 ? "kept" : "lost";
      },
    });
  };

  it("finds the orders in which an increment is lost", async () => {
    // One after the other is right, in two ways; every order in which they overlap is wrong.
    expect(await count("")).toEqual({ lost: 12, kept: 2 });
  });

  it("sets a session aside that waits for a lock, and goes on with the other", async () => {
    // Whoever is second waits from its first move on, which comes at three places of the first.
    expect(await count("FOR UPDATE")).toEqual({ kept: 6 });
  });
});

describe("two claims of the same lane", () => {
  const MANNERS: [Manner, Manner][] = [
    ["alone", "alone"],
    ["alone", "beside"],
    ["beside", "beside"],
  ];

  /** Nobody has what another one has, and the tables say the same as the answers. */
  const checkClaims = async (scene: RaceScene, claims: readonly Claimed[]): Promise<string> => {
    const all = claims.flatMap(({ ids }) => ids);
    expect(new Set(all).size).toBe(all.length);
    const holders = await readHolders(scene);
    const said = new Map(claims.flatMap(({ ids, claimId }) => ids.map((id) => [id, claimId])));
    for (const [id, holder] of holders) expect(holder).toBe(said.get(id) ?? null);
    return claims.map(({ ids }) => ids.length).join(" ");
  };

  it("never take the same task", async () => {
    const scene = await raceScene(3);
    const { lane } = scene;
    const claim = (manner: Manner) => (racer: Racer) => claimIn(racer, { lane, manner, take: 2 });
    const reset = (): Promise<void> => resetPending(scene, 3);
    for (const [one, other] of MANNERS) {
      await scene.interleaver.run({
        scripts: { first: claim(one), second: claim(other) },
        reset,
        check: (run) => checkClaims(scene, ["first", "second"].map(run.result<Claimed>)),
      });
    }
    await scene.interleaver.run({
      scripts: { first: claim("alone"), second: claim("beside"), third: claim("beside") },
      reset,
      check: (run) => checkClaims(scene, ["first", "second", "third"].map(run.result<Claimed>)),
    });
  });

  it("leave nothing held by one that is rolled back", async () => {
    const scene = await raceScene(2);
    const { lane } = scene;
    for (const [one, other] of MANNERS) {
      await scene.interleaver.run({
        scripts: {
          undone: (racer) => claimIn(racer, { lane, manner: one, take: 2 }, "ROLLBACK"),
          kept: (racer) => claimIn(racer, { lane, manner: other, take: 2 }),
        },
        reset: () => resetPending(scene, 3),
        check: (run) => checkClaims(scene, [run.result<Claimed>("kept")]),
      });
    }
  });
});

/** Completes the one task that runs. Whether that was accepted. */
const complete =
  (token: () => LeaseToken) =>
  (racer: Racer): Promise<boolean> =>
    racer.transaction(async (tx) => {
      const { taskId: id, generation, claimId } = token();
      const row = { id, generation, claimId, result: "1" };
      return (await completeTasks(tx, [row], [claimId])) === undefined;
    });

/** Takes what is lost, as the housekeeper does. How many there were. */
const reap = (racer: Racer): Promise<number> =>
  racer.transaction(async (tx) => {
    const claims = await lockDueClaims(tx, 50);
    if (claims.length === 0) return 0;
    const ids = (await lockLostTasks(tx, claims)).map(({ id }) => id);
    if (ids.length > 0) await putOnProbation(tx, ids);
    await forgetClaims(tx, claims);
    return ids.length;
  });

describe("a completion and the reaper of its lease", () => {
  let token: LeaseToken;
  const race = (scene: RaceScene) => ({
    scripts: { holder: complete(() => token), reaper: reap },
    reset: async () => {
      token = await resetRunning(scene, -1);
    },
    check: async (run: Run): Promise<string> => {
      const accepted = run.result<boolean>("holder");
      expect(run.result<number>("reaper")).toBe(accepted ? 0 : 1);
      const { live, claimId, ended, losses, tally } = await readFacts(scene);
      const facts = { isLive: live !== null, isOurs: claimId === token.claimId };
      expect({ ...facts, ended, losses, tally }).toEqual(
        accepted
          ? { isLive: false, isOurs: false, ended: ["completed"], losses: 0, tally: -1 }
          : { isLive: true, isOurs: false, ended: [], losses: 1, tally: 0 },
      );
      return accepted ? "completed" : "reaped";
    },
  });

  it("never both have the task, and a refused completion leaves nothing", async () => {
    const scene = await raceScene(2);
    const ends = await scene.interleaver.run(race(scene));
    expect(Object.keys(ends).sort()).toEqual(["completed", "reaped"]);
  });

  it("nor do they when somebody claims it meanwhile", async () => {
    const scene = await raceScene(3);
    const { lane, probation } = scene;
    const { scripts, reset, check } = race(scene);
    const heir = async (racer: Racer): Promise<Claimed> => {
      const claimed = await claimIn(racer, { lane, manner: "beside", take: 1 });
      return claimed.ids.length > 0
        ? claimed
        : await claimIn(racer, { lane: probation, manner: "alone", take: 1 });
    };
    const ends = await scene.interleaver.run({
      scripts: { ...scripts, heir },
      sample: { count: 60, seed: 4711 },
      reset,
      check: async (run) => {
        const end = await check(run);
        const { claimId, ids } = run.result<Claimed>("heir");
        expect((await readFacts(scene)).claimId).toBe(ids.length > 0 ? claimId : null);
        return ids.length > 0 ? `${end}, claimed` : end;
      },
    });
    expect(Object.keys(ends).sort()).toEqual(["completed", "reaped", "reaped, claimed"]);
  });
});

describe("a cancel", () => {
  let token: LeaseToken;
  const canceller = (scene: RaceScene) => {
    const { db } = enqueueContext(scene.database);
    return (racer: Racer): Promise<string> =>
      new TaskAdmin(databaseOf(racer, db), { changes: "changes", tasks: "tasks" }).cancel(TASK);
  };

  it("and the completion of the running task: it ends once, as completed", async () => {
    const scene = await raceScene(2);
    const ends = await scene.interleaver.run({
      scripts: { holder: complete(() => token), canceller: canceller(scene) },
      reset: async () => {
        token = await resetRunning(scene, 60);
      },
      check: async (run) => {
        expect(run.result("holder")).toBe(true);
        const { live, ended, tally } = await readFacts(scene);
        expect({ live, ended, tally }).toEqual({ live: null, ended: ["completed"], tally: -1 });
        const failure = run.failure("canceller");
        if (failure === undefined) return run.result<string>("canceller");
        expect(failure).toMatchObject({ code: "TM_CONFLICT" });
        return "refused";
      },
    });
    expect(Object.keys(ends).sort()).toEqual(["cancelling", "refused"]);
  });

  it("and the return of the running task: it is cancelled, or its worker is told", async () => {
    const scene = await raceScene(2);
    const holder = (racer: Racer): Promise<Ended> =>
      racer.transaction(async (tx) => {
        const { taskId: id, generation, claimId: claim_id } = token;
        const row = { id, generation, claim_id, outcome: "failed", reason: "broken" } as const;
        return await putBackTasks(tx, [{ ...row, delay: 0, refund: false }]);
      });
    const ends = await scene.interleaver.run({
      scripts: { holder, canceller: canceller(scene) },
      reset: async () => {
        token = await resetRunning(scene, 60);
      },
      check: async (run) => {
        const { live, cancelReason, ended } = await readFacts(scene);
        const isBack = run.result<Ended>("holder").accepted.has(TASK);
        const isCancelled = run.result("canceller") === "cancelled";
        expect(isCancelled).toBe(isBack);
        expect({ live, isTold: cancelReason !== null, ended }).toEqual(
          isCancelled
            ? { live: null, isTold: false, ended: ["cancelled"] }
            : { live: "running", isTold: true, ended: [] },
        );
        return run.result<string>("canceller");
      },
    });
    expect(Object.keys(ends).sort()).toEqual(["cancelled", "cancelling"]);
  });

  it("and a claim of the pending task: it never runs, or its worker is told", async () => {
    const scene = await raceScene(2);
    const { lane } = scene;
    for (const manner of ["alone", "beside"] as const) {
      const ends = await scene.interleaver.run({
        scripts: {
          claimer: (racer) => claimIn(racer, { lane, manner, take: 1 }),
          canceller: canceller(scene),
        },
        reset: () => resetPending(scene, 1),
        check: async (run) => {
          const { live, cancelReason, ended } = await readFacts(scene);
          const isTaken = run.result<Claimed>("claimer").ids.length > 0;
          expect(run.result("canceller")).toBe(isTaken ? "cancelling" : "cancelled");
          expect({ live, isTold: cancelReason !== null, ended }).toEqual(
            isTaken
              ? { live: "running", isTold: true, ended: [] }
              : { live: null, isTold: false, ended: ["cancelled"] },
          );
          return run.result<string>("canceller");
        },
      });
      expect(Object.keys(ends).sort()).toEqual(["cancelled", "cancelling"]);
    }
  });
});

/** If the claimer took something, it had committed before the other did. */
function takenBefore(run: Run, claimer: string, other: string): "taken" | "nothing" {
  if (run.result<Claimed>(claimer).ids.length === 0) return "nothing";
  expect(run.commits.indexOf(claimer)).toBeLessThan(run.commits.indexOf(other));
  return "taken";
}

describe("a keyed claim and the move of its bucket", () => {
  const [OLD, NEXT] = [randomUUID(), randomUUID()];
  const reset = async (scene: RaceScene): Promise<void> => {
    await resetPending(scene, 2, KEY);
    await resetOwner(scene, OLD);
  };
  const mover = (racer: Racer): Promise<boolean[]> =>
    racer.transaction(async (tx) => [
      await writeBucketOwner(tx, 0, { worker: OLD, epoch: "1" }, []),
      await writeBucketOwner(tx, 0, { worker: NEXT, epoch: "0" }, [0]),
    ]);
  const old = (racer: Racer): Promise<Claimed> => claimKeyIn(racer, OLD, "1", 1);

  it("nothing is claimed under the old epoch once the move has committed", async () => {
    const scene = await raceScene(2);
    const ends = await scene.interleaver.run({
      scripts: { old, mover },
      reset: () => reset(scene),
      check: (run) => {
        expect(run.result("mover")).toEqual([true, true]);
        return takenBefore(run, "old", "mover");
      },
    });
    expect(Object.keys(ends).sort()).toEqual(["nothing", "taken"]);
  });

  it("no two owners ever hold tasks of one key", async () => {
    const scene = await raceScene(3);
    const next = async (racer: Racer): Promise<Claimed | undefined> => {
      const [mine] = await readOwnedBuckets(racer.connection, NEXT);
      if (mine === undefined) return undefined;
      const foreign = await findForeignLanes(racer.connection, [KEY_LANE], []);
      return foreign.size > 0 ? undefined : await claimKeyIn(racer, NEXT, mine.epoch, 2);
    };
    const ends = await scene.interleaver.run({
      scripts: { old, mover, next },
      sample: { count: 80, seed: 815 },
      reset: () => reset(scene),
      check: (run) => {
        const ofOld = run.result<Claimed>("old").ids.length;
        const ofNext = run.result<Claimed | undefined>("next")?.ids.length ?? 0;
        return `${ofOld} ${ofNext}`;
      },
    });
    expect(Object.keys(ends).sort()).toEqual(["0 0", "0 2", "1 0"]);
  });
});

it("after the pause of a queue no claim takes anything", async () => {
  const scene = await raceScene(2);
  const { lane } = scene;
  const owner = randomUUID();
  const pauser = (racer: Racer): Promise<boolean> =>
    racer.transaction((tx) => pauseQueue(tx, "orders", null));
  const claimers: [key: string | undefined, claimer: (racer: Racer) => Promise<Claimed>][] = [
    [undefined, (racer) => claimIn(racer, { lane, manner: "alone", take: 1 })],
    [undefined, (racer) => claimIn(racer, { lane, manner: "beside", take: 1 })],
    [KEY, (racer) => claimKeyIn(racer, owner, "1", 1)],
  ];
  for (const [key, claimer] of claimers) {
    const ends = await scene.interleaver.run({
      scripts: { claimer, pauser },
      reset: async () => {
        await resetPending(scene, 1, key);
        await resetOwner(scene, owner);
      },
      check: (run) => takenBefore(run, "claimer", "pauser"),
    });
    expect(Object.keys(ends).sort()).toEqual(["nothing", "taken"]);
  }
});

it("two workers never take more slots of a limit than it has", async () => {
  const scene = await raceScene(2);
  await scene.admin.query(`UPDATE tidemill.queues SET limits_set = '{"concurrency": 3}'`);
  const take = (racer: Racer): Promise<Taken> =>
    racer.transaction((tx) =>
      takeLimits(tx, "orders", randomUUID(), { slots: 2, starts: 0, lateSeconds: 1 }),
    );
  const ends = await scene.interleaver.run({
    scripts: { first: take, second: take },
    reset: () =>
      scene.admin.query(
        `DELETE FROM tidemill.limit_grants;
         INSERT INTO tidemill.limit_slots (queue, granted) VALUES ('orders', 0)
             ON CONFLICT (queue) DO UPDATE SET granted = 0`,
      ),
    check: (run) => {
      const [first, second] = ["first", "second"].map((name) => run.result<Taken>(name).slots);
      expect((first ?? 0) + (second ?? 0)).toBe(3);
      return `${first} ${second}`;
    },
  });
  expect(Object.keys(ends).sort()).toEqual(["1 2", "2 1"]);
});

it("slots of a lost worker are freed, but for those under which it claims meanwhile", async () => {
  const scene = await raceScene(2);
  const { admin, lane } = scene;
  const workerId = randomUUID();
  const proofs = [{ queue: "orders", slots: 3, deadline: null }];
  const ends = await scene.interleaver.run({
    scripts: {
      claimer: (racer) => claimIn(racer, { lane, manner: "beside", take: 2, workerId, proofs }),
      leader: (racer) => racer.transaction((tx) => freeLostLimits(tx, 10)),
    },
    reset: async () => {
      await resetPending(scene, 3);
      await admin.query(
        `DELETE FROM tidemill.limit_grants;
         DELETE FROM tidemill.limit_slots;
         INSERT INTO tidemill.limit_slots (queue, granted) VALUES ('orders', 3);
         INSERT INTO tidemill.limit_grants (queue, worker_id, slots)
         VALUES ('orders', '${workerId}', 3)`,
      );
    },
    check: async (run) => {
      const taken = run.result<Claimed>("claimer").ids.length;
      const freed = run.result<number>("leader");
      const { rows } = await admin.query<{ granted: number; slots: number }>(
        `SELECT granted, (SELECT COALESCE(sum(slots), 0)::int FROM tidemill.limit_grants) AS slots
           FROM tidemill.limit_slots`,
      );
      expect(rows).toEqual([{ granted: 3 - freed, slots: 3 - freed }]);
      expect(taken).toBeLessThanOrEqual(3 - freed);
      return `${taken} ${freed}`;
    },
  });
  // What is claimed after it needs the slots that are gone.
  expect(Object.keys(ends).sort()).toEqual(["0 3", "2 1"]);
});
