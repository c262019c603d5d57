import type { Found, Run, Steps } from "../run.ts";
import type { HoldRow, OwnerRow, Tables, TaskRow } from "../tables.ts";
import { byOrder, claimant, orderOf, refuseProofs, takePicked } from "./claim.ts";
import { numbersOf, secondsToMs, wordsOf } from "./parameters.ts";
import { reading, type Scene, type SimStatements } from "./statement.ts";

const isPending = (task: TaskRow): boolean => task.state === "pending";

const isOfKey =
  ({ tenant, partitionKey }: Pick<HoldRow, "tenant" | "partitionKey">) =>
  (other: { readonly tenant: string; readonly partitionKey: string | null }): boolean =>
    other.tenant === tenant && other.partitionKey === partitionKey;

const markerOf = (run: Run, tables: Tables): string | null =>
  run.rows(tables.markers)[0]?.id ?? null;

/** The row that says what the worker owns, compared and locked to the end of the transaction. */
function* lockOwner(
  run: Run,
  tables: Tables,
  isMine: (owner: OwnerRow) => boolean,
): Steps<boolean> {
  const [found] = run.select(tables.owners, isMine);
  if (found === undefined) return false;
  return (yield* run.lock(found, "share", isMine)) !== undefined;
}

function* lockQueues(run: Run, tables: Tables, keySpaceId: unknown): Steps<void> {
  const queues = run.select(tables.queues, (queue) => queue.keySpaceId === keySpaceId);
  yield* run.lockAll(queues, "key-share", () => true, "wait");
}

interface Line {
  readonly lane: number;
  readonly floor: number;
  readonly after: number;
  readonly take: number;
}

interface LineValues {
  readonly keySpaceId: unknown;
  readonly lanes: unknown;
  readonly floors: unknown;
  readonly starts: unknown;
  readonly takes?: unknown;
  readonly held: readonly unknown[];
}

/** Where each lane begins: at its start only while all keys that it passes over are held. */
function linesOf(run: Run, tables: Tables, given: LineValues): Line[] {
  const [heldLanes, tenants, keys] = given.held;
  const flowing = new Set(
    numbersOf(heldLanes).filter((_, place) => {
      const key = {
        tenant: (tenants as string[])[place] ?? "",
        partitionKey: (keys as string[])[place] ?? "",
      };
      const isHeld = isOfKey(key);
      return !run.exists(tables.holds, (hold) => {
        return hold.keySpaceId === given.keySpaceId && isHeld(hold);
      });
    }),
  );
  const [floors, starts] = [numbersOf(given.floors), numbersOf(given.starts)];
  const takes = given.takes === undefined ? [] : numbersOf(given.takes);
  return numbersOf(given.lanes).map((lane, place) => {
    const floor = floors[place] ?? 0;
    const after = flowing.has(lane) ? floor : (starts[place] ?? 0);
    return { lane, floor, after, take: takes[place] ?? 0 };
  });
}

function byLane(some: readonly Found<TaskRow>[]): Map<number, Found<TaskRow>[]> {
  const lanes = new Map<number, Found<TaskRow>[]>();
  for (const found of some) {
    const { lane } = found.data;
    const known = lanes.get(lane);
    if (known === undefined) lanes.set(lane, [found]);
    else known.push(found);
  }
  return lanes;
}

function* claimKeyed(scene: Scene, values: readonly unknown[]): Steps<readonly object[]> {
  const { run, tables } = scene;
  const [, workerId, , keySpaceId, epoch, lanes, floors, takes, except, proofs] = values;
  const [marker, starts, ...held] = values.slice(12);
  refuseProofs(proofs);
  const isSameServer = marker === null || marker === markerOf(run, tables);
  const isMine = (owner: OwnerRow): boolean =>
    owner.keySpaceId === keySpaceId &&
    owner.workerId === workerId &&
    owner.epoch === Number(epoch || Number.NaN) &&
    isSameServer;
  const isOwner = yield* lockOwner(run, tables, isMine);
  yield* lockQueues(run, tables, keySpaceId);
  const holds = run.rows(tables.holds, (hold) => hold.keySpaceId === keySpaceId);
  const lines = linesOf(run, tables, { keySpaceId, lanes, floors, starts, takes, held });
  const some: Found<TaskRow>[] = [];
  const pickedLanes: number[] = [];
  const inLane = byLane(run.select(tables.tasks, isPending));
  for (const { lane, after, take } of isOwner ? lines : []) {
    const ready = (inLane.get(lane) ?? []).filter(
      ({ data: task }) =>
        orderOf(task) > after &&
        !(except as string[]).includes(`${task.tenant}\u001f${task.partitionKey}`) &&
        !holds.some((hold) => isOfKey(hold)(task)),
    );
    for (const found of ready.sort(byOrder).slice(0, take)) {
      some.push(found);
      pickedLanes.push(lane);
    }
  }
  if (some.length > 0) run.tx.isAsync = true;
  return yield* takePicked(run, tables, claimant(values), {
    some,
    lanes: pickedLanes,
    hasPassed: holds.length > 0,
    isWanted: isPending,
  });
}

interface Named {
  readonly found: Found<TaskRow>;
  readonly hold: HoldRow;
}

/** Tasks that holds name, in their order. */
function namedHeads(
  { run, tables }: Scene,
  keySpaceId: unknown,
  lanes: ReadonlySet<number>,
): Named[] {
  const holds = run.rows(
    tables.holds,
    ({ keySpaceId: id, lane, why }) =>
      id === keySpaceId && lanes.has(lane) && (why === "retry" || why === "probation"),
  );
  return holds
    .flatMap((hold) =>
      run.select(tables.tasks, (task) => task.id === hold.taskId).map((found) => ({ found, hold })),
    )
    .sort((a, b) => byOrder(a.found, b.found));
}

/** Those that lead their key, and whose time has come. */
function dueHeads(
  { run, tables }: Scene,
  named: readonly Named[],
  except: { readonly queues: readonly string[]; readonly keys: readonly string[] },
): { readonly found: Found<TaskRow>; readonly until: number }[] {
  const firsts = named.filter(({ hold }, place) => {
    return named.findIndex((other) => isOfKey(hold)(other.hold)) === place;
  });
  return firsts.flatMap(({ found, hold }) => {
    const task = found.data;
    const isOther = run.exists(
      tables.holds,
      (other) =>
        other.keySpaceId === hold.keySpaceId &&
        isOfKey(hold)(other) &&
        (other.until === null || other.until > run.now),
    );
    const isBehind = run.exists(
      tables.tasks,
      (before) =>
        before.lane === task.lane && orderOf(before) < orderOf(task) && isOfKey(hold)(before),
    );
    const isRefused =
      except.queues.includes(task.queue) ||
      except.keys.includes(`${hold.tenant}\u001f${hold.partitionKey}`);
    const isDue = isPending(task) && task.runAt <= run.now && !isRefused;
    return isDue && !isOther && !isBehind ? [{ found, until: hold.until ?? Infinity }] : [];
  });
}

function* claimHeads(scene: Scene, values: readonly unknown[]): Steps<readonly object[]> {
  const { run, tables } = scene;
  const [, workerId, , keySpaceId, epoch, lanes, all, probation, proofs] = values;
  const except = { queues: values[11] as string[], keys: values[13] as string[] };
  refuseProofs(proofs);
  const isMine = (owner: OwnerRow): boolean =>
    owner.keySpaceId === keySpaceId &&
    owner.workerId === workerId &&
    owner.epoch === Number(epoch || Number.NaN);
  const named = namedHeads(scene, keySpaceId, new Set(numbersOf(lanes)));
  // PostgreSQL looks at the owner only when there is something to be claimed.
  const isOwner = named.length > 0 && (yield* lockOwner(run, tables, isMine));
  if (isOwner) yield* lockQueues(run, tables, keySpaceId);
  const due = isOwner ? dueHeads(scene, named, except) : [];
  if (isOwner) run.tx.isAsync = true;
  due.sort((a, b) => a.until - b.until);
  const some = [
    ...due.filter(({ found }) => !found.data.onProbation).slice(0, Number(all)),
    ...due.filter(({ found }) => found.data.onProbation).slice(0, Number(probation)),
  ]
    .sort((a, b) => a.until - b.until)
    .slice(0, Number(all))
    .map(({ found }) => found);
  return yield* takePicked(run, tables, claimant(values), {
    some,
    lanes: some.map(({ data }) => data.lane),
    hasPassed: true,
    isWanted: isPending,
  });
}

/** Nothing is enqueued in packs here. */
const NO_PACK = "9223372036854775807";

function lookAtKeyLanes(scene: Scene, values: readonly unknown[]): object[] {
  const { run, tables } = scene;
  const [keySpaceId, lanes, floors, starts, ...rest] = values;
  const [except, heldMax] = rest.slice(3);
  const marker = markerOf(run, tables);
  const lines = linesOf(run, tables, {
    keySpaceId,
    lanes,
    floors,
    starts,
    held: rest.slice(0, 3),
  });
  const holds = run.rows(tables.holds, (hold) => hold.keySpaceId === keySpaceId);
  const text = (order: number | undefined): string | null =>
    order === undefined ? null : String(order);
  const inLane = byLane(run.select(tables.tasks, (task) => task.claimOrder !== null));
  return lines.map(({ lane, floor, after }) => {
    const ofLane = (inLane.get(lane) ?? []).map(({ data }) => data);
    const orders = (some: readonly TaskRow[]): number[] => some.map(orderOf).sort((a, b) => a - b);
    const ready = ofLane.filter((task) => isPending(task) && orderOf(task) > floor);
    const [first] = orders(ready);
    const [free] = orders(
      ready.filter(
        (task) =>
          orderOf(task) > after &&
          !(except as string[]).includes(`${task.tenant}\u001f${task.partitionKey}`) &&
          !holds.some((hold) => isOfKey(hold)(task)),
      ),
    );
    const isPassed = first !== undefined && first < (free ?? Infinity);
    const held = holds
      .filter((hold) => hold.lane === lane)
      .map(({ tenant, partitionKey }) => JSON.stringify({ tenant, key: partitionKey }));
    const some = [...new Set(held)]
      .slice(0, Number(heldMax))
      .map((one) => JSON.parse(one) as object);
    return {
      lane,
      claim_order: text(first),
      free_order: text(free),
      last_order: isPassed ? text(orders(ofLane).at(-1)) : null,
      held: isPassed && some.length > 0 ? some : null,
      first_pack: NO_PACK,
      oldest_running: run.oldestRunning,
      marker,
    };
  });
}

function foreignLanes({ run, tables }: Scene, [lanes, ours]: readonly unknown[]): object[] {
  const asked = new Set(numbersOf(lanes));
  const own = new Set(wordsOf(ours));
  const found = new Set<number>();
  for (const claim of run.rows(tables.claims)) {
    if (claim.keyLanes === null || !claim.keyLanes.some((lane) => asked.has(lane))) continue;
    for (const id of claim.taskIds) {
      const [task] = run.rows(tables.tasks, (one) => one.id === id);
      const isHeld = task?.claimId === claim.claimId && asked.has(task.lane);
      if (isHeld && !own.has(String(id))) found.add(task.lane);
    }
  }
  return [...found].map((lane) => ({ lane }));
}

/** Key spaces with their queues. All of them are of one tenant here. */
function spacesOf(
  run: Run,
  tables: Tables,
): { key_space_id: number; name: string; tenant: string; queues: string[] }[] {
  return run
    .rows(tables.keySpaces)
    .sort((a, b) => a.id - b.id)
    .map(({ id, name }) => ({
      key_space_id: id,
      name,
      tenant: "default",
      queues: run
        .rows(tables.queues, (queue) => queue.keySpaceId === id)
        .map((queue) => queue.name)
        .sort(),
    }));
}

/** src/tasks/sql/keys.ts, key-lanes.ts, key-packs.ts and bucket-owners.ts */
export const keyStatements: SimStatements = {
  tasks_claim_keyed: claimKeyed,
  tasks_claim_heads: claimHeads,
  key_lanes_look: reading(lookAtKeyLanes),
  key_lanes_foreign: reading(foreignLanes),
  key_space_probe: reading(({ run, tables }, [keySpaceId]) => {
    const last = -(Number(keySpaceId) * 360);
    const hasRows = run.exists(
      tables.tasks,
      (task) => task.lane >= last - 360 && task.lane < last && isPending(task),
    );
    return [{ has_rows: hasRows, has_packs: false }];
  }),
  packs_open_keyed: reading(() => [{ count: 0 }]),
  buckets_mine: reading(({ run, tables }, [workerId]) =>
    run
      .rows(tables.owners, (owner) => owner.workerId === workerId)
      .map(({ keySpaceId, epoch, buckets }) => ({
        key_space_id: keySpaceId,
        base_id: keySpaceId,
        tenant: "default",
        epoch: String(epoch),
        buckets,
      })),
  ),
  bucket_owners_read: reading(({ run, tables }, [ids]) =>
    spacesOf(run, tables)
      .filter(({ key_space_id: id }) => ids === null || (ids as number[]).includes(id))
      .map((space) => ({
        ...space,
        owners: run
          .rows(tables.owners, (owner) => owner.keySpaceId === space.key_space_id)
          .map(({ workerId, epoch, buckets }) => {
            return { worker: workerId, epoch: String(epoch), buckets };
          }),
      })),
  ),
  bucket_ring: reading(({ run, tables }, [seconds]) => {
    const spaces = spacesOf(run, tables).map((space) => ({
      ...space,
      sizes: run
        .rows(tables.owners, (owner) => owner.keySpaceId === space.key_space_id)
        .map(({ workerId, buckets }) => ({ worker: workerId, count: buckets.length })),
    }));
    const members = run
      .rows(tables.nodes, (node) => node.heartbeatAt >= run.now - secondsToMs(seconds))
      .flatMap(({ workerId }) =>
        run
          .rows(tables.infos, (info) => info.workerId === workerId && info.status === "active")
          .map(({ queues }) => ({ worker_id: workerId, queues, tenants: [] })),
      );
    return [{ members, spaces }];
  }),
  *bucket_owner_write({ run, tables }, [keySpaceId, workerId, expected, buckets]) {
    const row = {
      keySpaceId: Number(keySpaceId),
      workerId: String(workerId),
      epoch: run.nextNumber(),
      buckets: numbersOf(buckets),
    };
    for (;;) {
      const there = yield* run.insert(tables.owners, row);
      if (there === undefined) return [{ epoch: String(row.epoch) }];
      const held = yield* run.lock(there, "no-key-update");
      if (held === undefined) continue; // It went meanwhile.
      if (held.data.epoch !== Number(expected)) return [];
      yield* run.update(tables.owners, held, () => row);
      return [{ epoch: String(row.epoch) }];
    }
  },
  *bucket_owner_remove({ run, tables }, [keySpaceId, workerId, epoch]) {
    return yield* run.removeAll(
      tables.owners,
      (owner) =>
        owner.keySpaceId === keySpaceId &&
        owner.workerId === workerId &&
        owner.epoch === Number(epoch),
    );
  },
};
