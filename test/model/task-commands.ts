import { randomUUID } from "node:crypto";
import type fc from "fast-check";
import { expect } from "vitest";
import { bucketOf } from "../../src/cluster/ring.ts";
import {
  ConflictError,
  completed,
  failed,
  IdempotencyConflictError,
  type LeaseToken,
  type NewTask,
  nack,
} from "../../src/index.ts";
import { PACK_TASKS_MAX } from "../../src/tasks/claimed-pack.ts";
import { buryTasks, completeTasks, endTasks, putBackTasks } from "../../src/tasks/sql/finish.ts";
import { keyedPackLane } from "../../src/tasks/sql/key-packs.ts";
import { extendLease, renewLeases, saveProgress } from "../../src/tasks/sql/lease.ts";
import { openWaitingPacks } from "../../src/tasks/sql/open-packs.ts";
import { insertPacks } from "../../src/tasks/sql/packs.ts";
import { type Act, MAX_ATTEMPTS, type ModelTask, type TaskModel } from "./task-model.ts";
import { type Stage, WORKERS } from "./task-stage.ts";
import type { ModelWorker } from "./task-worker.ts";

export type TaskCommand = fc.AsyncCommand<TaskModel, Stage>;

/** Acts on both, and then both must agree. */
export function command(
  name: string,
  act: (model: TaskModel, stage: Stage) => Promise<void>,
): TaskCommand {
  return {
    check: () => true,
    async run(model, stage) {
      model.now += 1;
      await act(model, stage);
      await stage.verify(model);
    },
    toString: () => name,
  };
}

/** As any of them, counted round. */
const pick = <T>(from: readonly T[], index: number): T | undefined => from[index % from.length];

const workerAt = (stage: Stage, index: number): ModelWorker => stage.workers[index % WORKERS]!;

/** One of those that are worth asking, if there are any. */
const oneOf = (stage: Stage, index: number, isWorthIt: (one: ModelWorker) => boolean) =>
  pick(stage.workers.filter(isWorthIt), index) ?? workerAt(stage, index);

export interface NewTaskSpec {
  readonly key: string | null;
  readonly once: string | null;
  readonly variant: number;
}

export const enqueue = (queue: string, specs: readonly NewTaskSpec[]): TaskCommand =>
  command(`enqueue ${JSON.stringify(specs)} to ${queue}`, async (model, stage) => {
    const known = new Map(model.idempotent);
    let isConflict = false;
    for (const { key, once, variant } of specs) {
      if (once === null) continue;
      const what = JSON.stringify([queue, key, variant]);
      isConflict ||= known.has(once) && known.get(once)?.what !== what;
      if (!known.has(once)) known.set(once, { id: "", what });
    }
    const tasks = specs.map(
      ({ key, once, variant }): NewTask => ({
        payload: { variant },
        ...(key === null ? {} : { partitionKey: key }),
        ...(once === null ? {} : { idempotencyKey: once }),
      }),
    );
    const enqueuing = stage.mill.enqueueMany(queue, tasks);
    if (isConflict) {
      await expect(enqueuing).rejects.toThrow(IdempotencyConflictError);
      return;
    }
    const added: string[] = [];
    for (const [index, { id }] of (await enqueuing).entries()) {
      const { key, once } = specs[index]!;
      const before = once === null ? undefined : model.idempotent.get(once);
      if (before !== undefined) {
        expect(id).toBe(before.id);
        continue;
      }
      model.enqueue(id, queue, key);
      added.push(id);
      if (once !== null) model.idempotent.set(once, { id, what: known.get(once)?.what ?? "" });
    }
    await stage.verify(model);
    const orders = added.map((id) => model.get(id).order ?? 0);
    expect(orders).toEqual(orders.toSorted((a, b) => a - b));
  });

export const claimUnkeyed = (
  worker: number,
  queue: string,
  take: number,
  isBesideOthers: boolean,
): TaskCommand =>
  command(`worker ${worker} claims ${take} of ${queue}`, async (model, stage) => {
    const one = workerAt(stage, worker);
    const probation = one.executor.hasProbation ? 0 : 1;
    const expected = [
      ...model.nextUnkeyed(queue, false, take),
      ...model.nextUnkeyed(queue, true, probation),
    ];
    const claimed = await one.claimUnkeyed(queue, take, isBesideOthers);
    expect(claimed.map(({ id }) => id).sort()).toEqual(expected.sort());
    for (const task of claimed) model.claim(task, one.id);
  });

/** As a bulk of so many is stored, were it large enough. */
export const enqueuePack = (queue: string, count: number): TaskCommand =>
  command(`enqueue a pack of ${count} to ${queue}`, async (model, stage) => {
    const shape = {
      lane: stage.laneOf(queue),
      queue,
      tenant: "default",
      priority: 5,
      max_attempts: MAX_ATTEMPTS,
    };
    const payloads = Array.from({ length: count }, (_, n) => JSON.stringify({ variant: n }));
    const ids = await insertPacks(stage.db, [{ payloads }], shape);
    for (const id of ids) model.enqueue(id, queue, null);
  });

export const enqueueKeyedPack = (queue: string, keys: readonly string[]): TaskCommand =>
  command(`enqueue a pack of ${keys.join(", ")} to ${queue}`, async (model, stage) => {
    const shape = {
      lane: keyedPackLane(stage.layout.spaceOf.get(queue)!),
      queue,
      tenant: "default",
      priority: 5,
      max_attempts: MAX_ATTEMPTS,
    };
    const payloads = keys.map((_, n) => JSON.stringify({ variant: n }));
    const pack = { payloads, keys, buckets: keys.map((key) => bucketOf(key)) };
    const ids = await insertPacks(stage.db, [pack], shape);
    for (const [n, id] of ids.entries()) model.enqueue(id, queue, keys[n] ?? null);
  });

export const claimPacksOf = (worker: number, queue: string, take: number): TaskCommand =>
  command(`worker ${worker} claims ${take} packs of ${queue}`, async (model, stage) => {
    const one = workerAt(stage, worker);
    const expected = model.nextPacked(queue, take);
    const claimed = await one.claimPacks(stage.laneOf(queue), take);
    expect(claimed.map(({ id }) => id).sort()).toEqual(expected.sort());
    for (const task of claimed) model.claim(task, one.id);
  });

/** Nothing of it changes but where its tasks stand in line. */
export const openPacks = (queue: string, take: number): TaskCommand =>
  command(`open ${take} packs of ${queue}`, async (_, stage) => {
    await openWaitingPacks(stage.db, { lane: stage.laneOf(queue), floor: 0, take });
  });

export async function claimKeyedBy(
  one: ModelWorker,
  want: number,
  isNews: boolean,
  { model, stage }: { readonly model: TaskModel; readonly stage: Stage },
): Promise<void> {
  const { waiting } = one;
  await one.watch();
  await stage.verify(model, waiting);
  for (const { tasks, isHeads } of await one.claimKeyed(want, isNews)) {
    model.claimKeyed(tasks, { workerId: one.id, heardAt: one.heardAt, isHeads });
  }
}

export interface KeyedClaimSpec {
  /** One of those that own buckets, or any. */
  readonly who: { readonly owner: number } | { readonly worker: number };
  readonly want: number;
  /** Whether it was told that there is work; otherwise it looks. */
  readonly isNews: boolean;
  /** Whether the floors of its lanes may rise. */
  readonly opensEpoch: boolean;
  /** Whether it takes packs whole, two at most; otherwise it opens them. */
  readonly isWhole: boolean;
}

export const TWO_PACKS = 2 * PACK_TASKS_MAX;

export const claimKeyed = (spec: KeyedClaimSpec): TaskCommand =>
  command(`claim keyed ${JSON.stringify(spec)}`, async (model, stage) => {
    const { who, want, isNews } = spec;
    const owners = new Set(model.owners.values());
    const one =
      "worker" in who
        ? workerAt(stage, who.worker)
        : oneOf(stage, who.owner, ({ id }) => owners.has(id));
    if (spec.opensEpoch) await one.openEpoch();
    one.isWhole = spec.isWhole;
    await claimKeyedBy(one, spec.isWhole ? TWO_PACKS : want, isNews, { model, stage });
  });

async function hearBy(one: ModelWorker, model: TaskModel, stage: Stage): Promise<void> {
  const { waiting } = one;
  await one.watch();
  await stage.verify(model, waiting);
  await one.hear(model.now);
  await stage.verify(model, waiting);
}

export const hear = (worker: number): TaskCommand =>
  command(`worker ${worker} hears`, (model, stage) =>
    hearBy(workerAt(stage, worker), model, stage),
  );

const OUTCOMES = {
  complete: completed(),
  nack: nack(0, "not now"),
  wait: nack(60, "later"),
  fail: failed("never", { retry: false }),
};

export interface EndSpec {
  readonly pick: number;
  readonly act: keyof typeof OUTCOMES;
}

/** Handlers of one worker end together: their ends are one batch. */
export async function endBy(one: ModelWorker, specs: readonly EndSpec[], model: TaskModel) {
  const { waiting } = one;
  const ends = new Map<ModelWorker["gates"][number], Act & keyof typeof OUTCOMES>();
  for (const spec of specs) {
    const gate = pick(one.gates, spec.pick);
    if (gate !== undefined && !ends.has(gate)) ends.set(gate, spec.act);
  }
  const stopped = new Set<string>();
  for (const [{ task }, act] of ends) {
    if (task.state !== "started") continue; // Lost, and known to be: nothing of it is written.
    const isOver = model.end(task.token, act, task.isCancelled);
    if (!isOver && task.key !== undefined) stopped.add(task.key);
  }
  await one.end([...ends].map(([gate, act]) => ({ gate, outcome: OUTCOMES[act] })));
  // What was behind one that comes back, or is somebody else's, goes back uncounted.
  for (const { key, token } of waiting) {
    if (key !== undefined && stopped.has(key)) model.end(token, "back", false);
  }
}

export const end = (busy: number, specs: readonly EndSpec[]): TaskCommand =>
  command(
    `busy worker ${busy} ends ${specs.map(({ pick, act }) => `${pick}: ${act}`).join(", ")}`,
    (model, stage) =>
      endBy(
        oneOf(stage, busy, ({ gates }) => gates.length > 0),
        specs,
        model,
      ),
  );

/** What it holds is given back uncounted. */
export const restart = (busy: number): TaskCommand =>
  command(`busy worker ${busy} is restarted`, async (model, stage) => {
    const one = oneOf(stage, busy, ({ gates }) => gates.length > 0);
    for (const task of one.executor.held) model.end(task.token, "back", task.isCancelled);
    await stage.restart(model, stage.workers.indexOf(one));
  });

export const renew = (worker: number): TaskCommand =>
  command(`busy worker ${worker} renews`, async (model, stage) => {
    const one = oneOf(stage, worker, ({ gates }) => gates.length > 0);
    const { waiting } = one;
    await one.renew();
    await stage.verify(model, waiting);
    for (const { token } of one.executor.held) {
      expect(model.isCurrent(token)).toBe(true);
      expect(model.get(token.taskId).expired).toBe(false);
    }
  });

export const expire = (busy: number, parity: number, isReaped: boolean): TaskCommand => {
  const reaped = isReaped ? ", and are taken" : "";
  const name = `leases of busy worker ${busy} end, but for ${parity} of 2${reaped}`;
  return command(name, async (model, stage) => {
    const one = oneOf(stage, busy, ({ gates }) => gates.length > 0);
    await stage.expire(one, parity);
    if (!isReaped) return;
    await stage.verify(model);
    await stage.housekeep();
    model.housekeep();
  });
};

export const timePasses = (): TaskCommand =>
  command("time passes", async (model, stage) => {
    await stage.timePasses();
    model.timePasses();
  });

export const housekeep = (): TaskCommand =>
  command("housekeeping", async (model, stage) => {
    await stage.housekeep();
    model.housekeep();
  });

export const crash = (worker: number): TaskCommand =>
  command(`worker ${worker} crashes`, (_, stage) => stage.crash(worker % WORKERS));

export const move = (queue: string, key: string, worker: number, isHeard: boolean): TaskCommand => {
  const heard = isHeard ? ", and is heard" : "";
  const name = `the bucket of ${queue}/${key} moves to worker ${worker}${heard}`;
  return command(name, async (model, stage) => {
    await stage.move(model, queue, key, worker % WORKERS);
    if (!isHeard) return;
    for (const one of stage.workers) await hearBy(one, model, stage);
  });
};

const taskAt = (model: TaskModel, index: number): ModelTask | undefined => pick(model.all, index);

export const cancel = (index: number): TaskCommand =>
  command(`cancel task ${index}`, async (model, { mill }) => {
    const task = taskAt(model, index);
    if (task === undefined) return;
    const answer = model.cancel(task.id);
    const cancelling = mill.tasks.cancel(task.id);
    if (answer === undefined) await expect(cancelling).rejects.toThrow(ConflictError);
    else expect(await cancelling).toBe(answer);
  });

export const retry = (index: number): TaskCommand =>
  command(`retry task ${index}`, async (model, { mill }) => {
    const task = taskAt(model, index);
    if (task === undefined) return;
    const isDone = model.retry(task.id);
    const retrying = mill.tasks.retry(task.id);
    if (isDone) await retrying;
    else await expect(retrying).rejects.toThrow(ConflictError);
  });

export const redrive = (): TaskCommand =>
  command("redrive", async (model, { mill }) => {
    expect(await mill.deadLetters.redrive()).toBe(model.redrive());
  });

export const pause = (queue: string, isPaused: boolean): TaskCommand =>
  command(`${isPaused ? "pause" : "resume"} ${queue}`, async (model, { mill }) => {
    if (isPaused) model.pausedQueues.add(queue);
    else model.pausedQueues.delete(queue);
    await (isPaused ? mill.queues.pause(queue) : mill.queues.resume(queue));
  });

export const pauseKey = (queue: string, key: string, isPaused: boolean): TaskCommand =>
  command(`${isPaused ? "pause" : "resume"} ${queue}/${key}`, async (model, { mill }) => {
    model.pauseKey(queue, key, isPaused);
    if (isPaused) await mill.queues.pauseKey(queue, key);
    else await mill.queues.resumeKey(queue, key);
  });

export type Forgery = "old token" | "other claim" | "other generation";

function forge(model: TaskModel, how: Forgery, index: number): LeaseToken | undefined {
  if (how === "old token")
    return pick(
      model.tokens.filter((one) => !model.isCurrent(one)),
      index,
    );
  const task = pick(
    model.all.filter(({ state }) => state === "running"),
    index,
  );
  if (task === undefined) return undefined;
  const { id: taskId, generation } = task;
  const claimId = task.claimId ?? "";
  return how === "other claim"
    ? { taskId, generation, claimId: randomUUID() }
    : { taskId, generation: generation + (index % 2 === 0 ? 1 : -1), claimId };
}

/** Whoever does not hold the lease changes nothing, whatever it tries. */
export const useStale = (how: Forgery, index: number): TaskCommand =>
  command(`use ${how} ${index}`, async (model, { db, database }) => {
    const token = forge(model, how, index);
    if (token === undefined) return;
    const { taskId: id, generation, claimId } = token;
    const completion = { id, generation, claimId, result: "" };
    expect((await completeTasks(db, [completion], []))?.has(id)).toBe(false);
    const row = { id, generation, claim_id: claimId, outcome: "failed", reason: "late" } as const;
    const refused = { accepted: new Set(), locked: new Set() };
    const back = { ...row, delay: 0, refund: true };
    expect(await putBackTasks(db, [back])).toEqual(refused);
    expect(await endTasks(db, [{ ...row, state: "failed" }])).toEqual(refused);
    const grave = { ...row, cause: "attempts_exhausted", park: true } as const;
    expect(await buryTasks(db, [grave])).toEqual(refused);
    expect(await renewLeases(db, [token], 60)).toEqual([undefined]);
    expect(await extendLease(db, token, 60)).toBeUndefined();
    expect(await saveProgress(db, token, "1")).toBe(false);
    const values = [id, generation, claimId];
    const asserting = database.pool.query("SELECT tidemill.assert_lease($1, $2, $3)", values);
    await expect(asserting).rejects.toMatchObject({ code: "TML01" });
  });
