import type { Run, Steps } from "../run.ts";
import type { HoldRow, Tables, TaskRow } from "../tables.ts";
import { orderOf } from "./claim.ts";
import { numbersOf } from "./parameters.ts";
import { reading, type Scene, type SimStatements } from "./statement.ts";

const isOfHold =
  ({ lane, tenant, partitionKey }: HoldRow) =>
  (task: TaskRow): boolean =>
    task.lane === lane &&
    orderOf(task) > 0 &&
    task.claimOrder !== null &&
    task.tenant === tenant &&
    task.partitionKey === partitionKey;

/** INSERT … ON CONFLICT DO UPDATE of a hold. */
export function* putHold(
  run: Run,
  tables: Tables,
  hold: HoldRow,
  change: (known: HoldRow) => Partial<HoldRow>,
): Steps<void> {
  for (;;) {
    const there = yield* run.insert(tables.holds, hold);
    if (there === undefined) return;
    const held = yield* run.lock(there, "no-key-update");
    if (held === undefined) continue; // It went meanwhile.
    yield* run.update(tables.holds, held, change);
    return;
  }
}

function* advance({ run, tables }: Scene, values: readonly unknown[]): Steps<object[]> {
  const [keySpaceId, lanes] = values;
  const asked = new Set(numbersOf(lanes));
  const found = run.select(
    tables.holds,
    (hold) => hold.keySpaceId === keySpaceId && asked.has(hold.lane) && hold.why !== "parked",
  );
  const ended: object[] = [];
  const stale: { readonly at: (typeof found)[number]; readonly nextId: number | null }[] = [];
  for (const at of found) {
    const hold = at.data;
    const ofKey = run.rows(tables.tasks, isOfHold(hold));
    ofKey.sort((a, b) => orderOf(a) - orderOf(b));
    const firstId = ofKey[0]?.id ?? null;
    const isThere = run.exists(tables.tasks, (task) => task.id === hold.taskId);
    const isStale =
      hold.why === "paused"
        ? hold.until !== null && hold.until <= run.now
        : firstId !== hold.taskId;
    if (!isStale) continue;
    const isProbation = ofKey.some((task) => task.onProbation);
    const nextId = hold.why !== "paused" && (isThere || isProbation) ? firstId : null;
    const isSame = (now: HoldRow): boolean => now.taskId === hold.taskId;
    const locked = yield* run.lock(at, "update", isSame, "skip");
    if (locked !== undefined) stale.push({ at: locked, nextId });
  }
  for (const { at, nextId } of stale) {
    if (nextId !== null) {
      yield* run.update(tables.holds, at, () => ({ taskId: nextId, until: run.now }));
    } else {
      yield* run.remove(tables.holds, at);
      ended.push({ lane: at.data.lane });
    }
  }
  return ended;
}

/** src/tasks/sql/holds.ts */
export const holdStatements: SimStatements = {
  key_holds_advance: advance,
  key_holds_next: reading(({ run, tables }, [keySpaceId, lanes, except]) => {
    if ((except as unknown[]).length > 0) throw new Error("rates are not simulated");
    const asked = new Set(numbersOf(lanes));
    const untils = run
      .rows(tables.holds, (hold) => hold.keySpaceId === keySpaceId && asked.has(hold.lane))
      .flatMap((hold) => hold.until ?? []);
    const dueIn = untils.length === 0 ? null : (Math.min(...untils) - run.now) / 1_000;
    return [{ holds: untils.length, due_in: dueIn }];
  }),
  keys_stopped: reading(({ run, tables }, [lanes]) => {
    const asked = new Set(numbersOf(lanes));
    return run
      .rows(
        tables.holds,
        ({ why, until, lane }) =>
          (why === "paused" || why === "parked") &&
          (until === null || until > run.now) &&
          asked.has(lane),
      )
      .map(({ lane, tenant, partitionKey }) => ({ lane, tenant, partition_key: partitionKey }));
  }),
};
