import { FIELD, PACK_LANES } from "../../../src/tasks/sql/claim.ts";
import { SEPARATOR } from "../../../src/tasks/sql/enqueue.ts";
import { type Found, type Run, ServerError, type Steps } from "../run.ts";
import type { LaneRow, Tables, TaskRow } from "../tables.ts";
import { numbersOf, secondsToMs } from "./parameters.ts";
import { reading, type Scene, type SimStatements } from "./statement.ts";

/** Who claims, in the order of every claim's first parameters. */
export interface Claimant {
  readonly claimId: string;
  readonly workerId: string;
  readonly leaseMs: number;
}

export const claimant = ([claimId, workerId, seconds]: readonly unknown[]): Claimant => ({
  claimId: String(claimId),
  workerId: String(workerId),
  leaseMs: secondsToMs(seconds),
});

/** No queue of the simulation has limits. */
export function refuseProofs(queues: unknown): void {
  if ((queues as unknown[]).length > 0) throw new Error("limits are not simulated");
}

export const orderOf = (task: TaskRow): number => task.claimOrder ?? Infinity;
export const byOrder = (a: Found<TaskRow>, b: Found<TaskRow>): number =>
  orderOf(a.data) - orderOf(b.data);

/** As claim.ts packs a row. */
function pack(task: TaskRow): string {
  const ms = (instant: number): number => Math.round(instant);
  const hasOwner = task.lane < 0 || task.onProbation;
  const isRare = task.createdAt !== task.runAt || task.onProbation;
  const fields: unknown[] = [
    task.id,
    task.lane,
    task.claimOrder === task.id ? "" : task.claimOrder,
    task.attempt,
    task.generation === task.attempt ? "" : task.generation,
    task.maxAttempts,
    ms(task.runAt),
    ...(hasOwner ? [task.queue, task.tenant, task.priority, task.partitionKey ?? ""] : []),
    ...(isRare ? [ms(task.createdAt), task.onProbation ? "t" : "f", "", "", "", ""] : []),
    task.payload,
  ];
  return fields.join(FIELD);
}

export interface Picked {
  readonly some: readonly Found<TaskRow>[];
  readonly lanes: readonly number[] | null;
  readonly hasPassed: boolean;
  /** Whether a row that was changed since the snapshot may still be taken. */
  readonly isWanted: (task: TaskRow) => boolean;
}

/** The end of every claim: rows become leased, one row in the ledger tells of them. */
export function* takePicked(
  run: Run,
  tables: Tables,
  { claimId, workerId, leaseMs }: Claimant,
  { some, lanes, hasPassed, isWanted }: Picked,
): Steps<readonly object[]> {
  const until = run.now + leaseMs;
  const taken: TaskRow[] = [];
  for (const found of some) {
    const after = yield* run.update(
      tables.tasks,
      found,
      (task) => ({
        state: "running" as const,
        attempt: task.attempt + 1,
        generation: task.generation + 1,
        claimId,
        leasedBy: workerId,
        leaseUntil: until,
      }),
      isWanted,
    );
    if (after !== undefined) taken.push(after);
  }
  if (some.length > 0) {
    const taskIds = some.map(({ data }) => data.id);
    const row = { claimId, workerId, checkAt: until, taskIds, keyLanes: lanes };
    yield* run.insertNew(tables.claims, row, "task_claims_pkey");
  }
  return [
    {
      rows: taken.length === 0 ? null : taken.map(pack).join(SEPARATOR),
      picked: some.length === 0 ? null : some.length,
      has_passed: hasPassed,
      until: until / 1_000,
    },
  ];
}

interface Line {
  readonly lane: number;
  readonly floor: number;
  readonly take: number;
}

/** The lanes that are asked, with the row of their queue locked. */
function* linesWanted(
  { run, tables }: Scene,
  [, , , lanes, floors, takes]: readonly unknown[],
): Steps<Line[]> {
  const [numbers, from, counts] = [numbersOf(lanes), numbersOf(floors), numbersOf(takes)];
  const lines: Line[] = [];
  for (const [place, lane] of numbers.entries()) {
    const [known] = run.rows(tables.lanes, (one) => one.lane === lane);
    const [queue] = run.select(tables.queues, (one) => one.name === known?.queue);
    if (queue === undefined || (yield* run.lock(queue, "key-share")) === undefined) continue;
    run.tx.isAsync = true;
    lines.push({ lane, floor: from[place] ?? 0, take: counts[place] ?? 0 });
  }
  return lines;
}

const isReady =
  ({ lane, floor }: Pick<Line, "lane" | "floor">) =>
  (task: TaskRow): boolean =>
    task.lane === lane && orderOf(task) > floor && task.state === "pending";

/** Found again by its place: one that has another by now is not taken. */
const never = (): boolean => false;

function* claimAlone(scene: Scene, values: readonly unknown[]): Steps<readonly object[]> {
  const { run, tables } = scene;
  refuseProofs(values[6]);
  const lines = yield* linesWanted(scene, values);
  if (lines.length > 0) run.tx.lockTimeoutMs = Number.parseInt(String(values[9]), 10);
  const some = lines.flatMap((line) =>
    run.select(tables.tasks, isReady(line)).sort(byOrder).slice(0, line.take),
  );
  const picked = { some, lanes: null, hasPassed: false, isWanted: never };
  return yield* takePicked(run, tables, claimant(values), picked);
}

function* claimBesideOthers(scene: Scene, values: readonly unknown[]): Steps<readonly object[]> {
  const { run, tables } = scene;
  refuseProofs(values[6]);
  const some: Found<TaskRow>[] = [];
  for (const line of yield* linesWanted(scene, values)) {
    let left = line.take;
    for (const found of run.select(tables.tasks, isReady(line)).sort(byOrder)) {
      if (left === 0) break;
      const held = yield* run.lock(found, "update", isReady(line), "skip");
      if (held === undefined) continue;
      some.push(found);
      left -= 1;
    }
  }
  const picked = { some, lanes: null, hasPassed: false, isWanted: never };
  return yield* takePicked(run, tables, claimant(values), picked);
}

const markerOf = ({ run, tables }: Scene): string | null => run.rows(tables.markers)[0]?.id ?? null;

function lookAtLanes(scene: Scene, values: readonly unknown[]): object[] {
  const { run, tables } = scene;
  const [queues, lanes, floors] = values;
  const from = numbersOf(floors);
  const known = new Map(numbersOf(lanes).map((lane, place) => [lane, from[place] ?? 0]));
  const facts = { oldest_running: run.oldestRunning, marker: markerOf(scene) };
  const view = (row: LaneRow, lane: number, head: TaskRow | undefined): object => ({
    ...row,
    lane,
    ...facts,
    claim_order: head === undefined ? null : String(head.claimOrder),
    waited: head === undefined ? null : (run.now - head.runAt) / 1_000,
  });
  const rows = run.rows(tables.lanes, (one) => (queues as string[]).includes(one.queue));
  const ofRows = rows.map((row) => {
    const line = { lane: row.lane, floor: known.get(row.lane) ?? 0 };
    const [head] = run.select(tables.tasks, isReady(line)).sort(byOrder);
    return view(row, row.lane, head?.data);
  });
  const ofPacks = rows.flatMap((row) => {
    const lane = PACK_LANES + row.lane;
    return row.priority >= 0 && known.has(lane) ? [view(row, lane, undefined)] : [];
  });
  return [...ofRows, ...ofPacks];
}

const BAR_MS = 86_400_000;

function* undoClaim({ run, tables }: Scene, [claimId]: readonly unknown[]): Steps<object[]> {
  const isTaken = (task: TaskRow): boolean => task.claimId === claimId;
  const ids = run
    .rows(tables.claims, (claim) => claim.claimId === claimId)
    .flatMap((claim) => claim.taskIds);
  const found = run.select(tables.tasks, (task) => ids.includes(task.id) && isTaken(task));
  found.sort((a, b) => a.data.id - b.data.id);
  const taken = yield* run.lockAll(found, "update", isTaken, "wait");
  for (const one of taken) {
    yield* run.update(tables.tasks, one, (task) => ({
      state: "pending" as const,
      attempt: task.attempt - 1,
      claimOrder: task.partitionKey === null ? run.nextNumber() : task.claimOrder,
      ...UNLEASED,
    }));
  }
  yield* run.removeAll(tables.claims, (claim) => claim.claimId === claimId);
  return [{ count: taken.length }];
}

export const UNLEASED = { claimId: null, leasedBy: null, leaseUntil: null };

/** src/tasks/sql/claim.ts, queues.ts and crash-marker.ts */
export const claimStatements: SimStatements = {
  tasks_claim_alone: claimAlone,
  tasks_claim: claimBesideOthers,
  lanes_look: reading(lookAtLanes),
  *claim_bar({ run, tables }, [claimId, workerId]) {
    const row = {
      claimId: String(claimId),
      workerId: String(workerId),
      checkAt: run.now + BAR_MS,
      taskIds: [],
      keyLanes: null,
    };
    return (yield* run.insert(tables.claims, row)) === undefined ? [{ claim_id: claimId }] : [];
  },
  tasks_undo_claim: undoClaim,
  packs_open_of_claim: reading(() => [{ count: 0 }]),
  *crash_marker_place({ run, tables, server }) {
    const id = `marker ${server.startedAt}`;
    yield* run.insert(tables.markers, { single: true as const, id });
    return [];
  },
  *key_space_ensure({ run, tables }, [name]) {
    const id = run.rows(tables.keySpaces).length;
    yield* run.insert(tables.keySpaces, { id, name: String(name) });
    return [];
  },
  *queue_register({ run, tables }, [name, keySpace, settings, limits]) {
    const [space] = run.rows(tables.keySpaces, (one) => one.name === keySpace);
    if (space === undefined) return [];
    const row = {
      name: String(name),
      keySpaceId: space.id,
      settings: JSON.parse(String(settings)) as object,
      limits: JSON.parse(String(limits)) as object,
    };
    const there = yield* run.insert(tables.queues, row);
    if (there === undefined) return [{ name }];
    const isOther = (queue: typeof row): boolean =>
      JSON.stringify([queue.settings, queue.limits]) !== JSON.stringify([row.settings, row.limits]);
    const held = yield* run.lock(there, "no-key-update");
    if (held === undefined) throw new ServerError("40001", "the queue is gone");
    if (!isOther(held.data)) return [];
    yield* run.update(tables.queues, held, () => row);
    return [{ name }];
  },
  queues_read: reading(({ run, tables }, [names]) =>
    run
      .rows(tables.queues, (queue) => names === null || (names as string[]).includes(queue.name))
      .map((queue) => ({
        name: queue.name,
        key_space_id: queue.keySpaceId,
        key_space: run.rows(tables.keySpaces, (one) => one.id === queue.keySpaceId)[0]?.name,
        settings: queue.settings,
        limits: queue.limits,
        paused_at: null,
        pause_reason: null,
        is_provisional: false,
        introduced_by: null,
        is_open: false,
      })),
  ),
};
