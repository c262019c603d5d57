import type { Found, Steps } from "../run.ts";
import type { TaskRow } from "../tables.ts";
import { orderOf, UNLEASED } from "./claim.ts";
import { putHold } from "./holds.ts";
import { numbersOf, wordsOf } from "./parameters.ts";
import { reading, type Scene, type SimStatements } from "./statement.ts";

const inSeconds = (instants: readonly number[], now: number): number | null =>
  instants.length === 0 ? null : (Math.min(...instants) - now) / 1_000;

function* lockDueClaims({ run, tables }: Scene, [max]: readonly unknown[]): Steps<object[]> {
  const due = run
    .select(tables.claims, (claim) => claim.checkAt <= run.now)
    .sort((a, b) => a.data.checkAt - b.data.checkAt);
  const locked: object[] = [];
  for (const one of due) {
    if (locked.length === max) break;
    const isDue = (claim: { readonly checkAt: number }): boolean => claim.checkAt <= run.now;
    const held = yield* run.lock(one, "update", isDue, "skip");
    if (held !== undefined) locked.push({ claim_id: held.data.claimId });
  }
  return locked;
}

function* lockLost({ run, tables }: Scene, [claimIds]: readonly unknown[]): Steps<object[]> {
  const ids = new Set(wordsOf(claimIds));
  const held = run
    .rows(tables.claims, (claim) => ids.has(claim.claimId))
    .flatMap(({ claimId, taskIds }) => taskIds.map((id) => ({ claimId, id })))
    .sort((a, b) => a.id - b.id);
  const lost: object[] = [];
  for (const { claimId, id } of held) {
    const isLost = (task: TaskRow): boolean =>
      task.id === id &&
      task.claimId === claimId &&
      task.leaseUntil !== null &&
      task.leaseUntil <= run.now;
    const [found] = run.select(tables.tasks, isLost);
    if (found === undefined) continue;
    const one = yield* run.lock(found, "update", isLost, "skip");
    if (one === undefined) continue;
    const task = one.data;
    const [queue] = run.rows(tables.queues, (row) => row.name === task.queue);
    lost.push({
      id: String(task.id),
      generation: task.generation,
      claim_id: task.claimId,
      leased_by: task.leasedBy,
      attempt: task.attempt,
      max_attempts: task.maxAttempts,
      losses: task.losses,
      on_probation: task.onProbation,
      is_keyed: task.partitionKey !== null,
      cancel_reason: null,
      max_losses: queue?.settings.maxLosses ?? 3,
      parks: queue?.settings.onFailure === "park",
    });
  }
  return lost;
}

function* putOnProbation({ run, tables }: Scene, [ids]: readonly unknown[]): Steps<object[]> {
  const given = new Set(numbersOf(ids));
  const found = run.select(tables.tasks, (task) => given.has(task.id));
  found.sort((a, b) => a.data.id - b.data.id);
  const lost = yield* run.lockAll(found, "update", () => true, "wait");
  for (const one of lost) {
    const { partitionKey, queue, tenant } = one.data;
    const [ward] = run.rows(
      tables.lanes,
      (row) => row.queue === queue && row.tenant === tenant && row.priority === -1,
    );
    yield* run.update(tables.tasks, one, (task) => ({
      state: "pending" as const,
      losses: task.losses + (task.onProbation ? 1 : 0),
      onProbation: true,
      lane: partitionKey === null ? (ward?.lane ?? task.lane) : task.lane,
      claimOrder: partitionKey === null ? run.nextNumber() : task.claimOrder,
      ...UNLEASED,
    }));
  }
  yield* holdLost({ run, tables }, lost);
  return [];
}

/** One hold for each key, which names the first of its tasks. */
function* holdLost(
  { run, tables }: Pick<Scene, "run" | "tables">,
  lost: readonly Found<TaskRow>[],
): Steps<void> {
  const firsts = new Map<string, TaskRow>();
  for (const { data: task } of lost) {
    if (task.partitionKey === null) continue;
    const key = JSON.stringify([task.lane, task.tenant, task.partitionKey]);
    const known = firsts.get(key);
    if (known === undefined || orderOf(task) < orderOf(known)) firsts.set(key, task);
  }
  for (const task of firsts.values()) {
    const hold = {
      keySpaceId: Math.floor((-task.lane - 1) / 360),
      tenant: task.tenant,
      partitionKey: task.partitionKey ?? "",
      lane: task.lane,
      why: "probation" as const,
      until: run.now,
      taskId: task.id,
    };
    yield* putHold(run, tables, hold, (known) => {
      const both = run.rows(tables.tasks, ({ id }) => id === known.taskId || id === task.id);
      both.sort((a, b) => orderOf(a) - orderOf(b));
      return { taskId: both[0]?.id ?? task.id };
    });
  }
}

const SOON_MS = 1_000;

function* forgetClaims({ run, tables }: Scene, [claimIds]: readonly unknown[]): Steps<object[]> {
  const ids = new Set(wordsOf(claimIds));
  for (const found of run.select(tables.claims, (claim) => ids.has(claim.claimId))) {
    const { taskIds, claimId } = found.data;
    const untils = run
      .rows(tables.tasks, (task) => taskIds.includes(task.id) && task.claimId === claimId)
      .flatMap((task) => task.leaseUntil ?? []);
    if (untils.length === 0) yield* run.remove(tables.claims, found);
    else {
      const checkAt = Math.max(Math.min(...untils), run.now + SOON_MS);
      yield* run.update(tables.claims, found, () => ({ checkAt }));
    }
  }
  return [];
}

function* promote({ run, tables }: Scene, [max]: readonly unknown[]): Steps<object[]> {
  const isDue = (task: TaskRow): boolean => task.claimOrder === null && task.runAt <= run.now;
  const found = run.select(tables.tasks, isDue).sort((a, b) => a.data.runAt - b.data.runAt);
  const due: Found<TaskRow>[] = [];
  for (const one of found) {
    if (due.length === max) break;
    const held = yield* run.lock(one, "update", isDue, "skip");
    if (held !== undefined) due.push(held);
  }
  due.sort((a, b) => a.data.runAt - b.data.runAt || a.data.id - b.data.id);
  for (const one of due) {
    yield* run.update(tables.tasks, one, () => ({
      state: "pending" as const,
      claimOrder: run.nextNumber(),
    }));
  }
  return [{ count: due.length }];
}

/** src/tasks/sql/housekeeping.ts and reap.ts */
export const housekeepingStatements: SimStatements = {
  claims_probe: reading(({ run, tables }) => {
    const dues = run.rows(tables.claims).map((claim) => claim.checkAt);
    return [{ seconds: inSeconds(dues, run.now) }];
  }),
  scheduled_probe: reading(({ run, tables }) => {
    const scheduled = run.rows(tables.tasks, (task) => task.claimOrder === null);
    return [
      {
        seconds: inSeconds(
          scheduled.map(({ runAt }) => runAt),
          run.now,
        ),
      },
    ];
  }),
  tasks_promote: promote,
  claims_due: lockDueClaims,
  packs_open_lost: reading(() => [{ count: 0 }]),
  tasks_lost: lockLost,
  tasks_on_probation: putOnProbation,
  claims_forget: forgetClaims,
};
