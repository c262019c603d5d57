import type { Found, Run, Steps } from "../run.ts";
import type { EndRow, HoldRow, Tables, TaskRow } from "../tables.ts";
import { UNLEASED } from "./claim.ts";
import { putHold } from "./holds.ts";
import { numbersOf, secondsToMs, wordsOf } from "./parameters.ts";
import { reading, type Scene, type SimStatements } from "./statement.ts";

/** What a worker says it holds. */
export interface Token {
  readonly id: number;
  readonly generation: number;
  readonly claim_id: string;
}

/** The fence: what every act on a claimed task is compared with. */
export const isHeld =
  ({ id, generation, claim_id: claimId }: Token) =>
  (task: TaskRow): boolean =>
    task.id === id && task.generation === generation && task.claimId === claimId;

const tokensOf = ([ids, generations, claims]: readonly unknown[]): Token[] => {
  const [gens, claimIds] = [numbersOf(generations), wordsOf(claims)];
  return numbersOf(ids).map((id, place) => ({
    id,
    generation: gens[place] ?? 0,
    claim_id: claimIds[place] ?? "",
  }));
};

const byId = (a: Token, b: Token): number => a.id - b.id;

/** Rows that are held as given, with what was given of them. */
function held<T extends Token>(
  { run, tables }: Scene,
  given: readonly T[],
): { readonly token: T; readonly found: Found<TaskRow> }[] {
  return given.flatMap((token) =>
    run.select(tables.tasks, isHeld(token)).map((found) => ({ token, found })),
  );
}

/** Locks those that nobody has locked, in the order of their ids. */
function* lockFree<T extends Token>(
  scene: Scene,
  given: readonly T[],
): Steps<{ readonly token: T; readonly found: Found<TaskRow> }[]> {
  const free: { readonly token: T; readonly found: Found<TaskRow> }[] = [];
  for (const { token, found } of held(scene, given.toSorted(byId))) {
    const one = yield* scene.run.lock(found, "update", isHeld(token), "skip");
    if (one !== undefined) free.push({ token, found: one });
  }
  return free;
}

export function* end(run: Run, tables: Tables, task: TaskRow, state: EndRow["state"]): Steps<void> {
  const { id: taskId, claimId, generation, attempt } = task;
  const row = { taskId, state, claimId, generation, attempt };
  yield* run.insertNew(tables.ends, row, "one end of each claim");
}

function* complete(scene: Scene, values: readonly unknown[]): Steps<object[]> {
  const { run, tables } = scene;
  const [ids, generations, places, , claims, ended, count] = values;
  const claimIds = claims as string[];
  const given = numbersOf(places).map((place) => claimIds[place - 1] ?? "");
  const tokens = tokensOf([ids, generations, `{${given.join(",")}}`]);
  const done: TaskRow[] = [];
  for (const { token, found } of held(scene, tokens)) {
    const gone = yield* run.remove(tables.tasks, found, isHeld(token));
    if (gone !== undefined) done.push(gone);
  }
  for (const task of done) yield* end(run, tables, task, "completed");
  yield* run.removeAll(tables.claims, (claim) => (ended as string[]).includes(claim.claimId));
  const accepted = done.length === count ? null : done.map((task) => task.id).join(",");
  return [{ accepted }];
}

interface GivenEnd extends Token {
  readonly delay?: number;
  readonly refund?: boolean;
  readonly reason?: string;
  readonly state?: "failed" | "cancelled";
  readonly park?: boolean;
}

const readEnds = ([json]: readonly unknown[]): GivenEnd[] => {
  const given = JSON.parse(String(json)) as (Omit<GivenEnd, "id"> & { readonly id: string })[];
  return given.map((one) => ({ ...one, id: Number(one.id) }));
};

function* putBack(scene: Scene, values: readonly unknown[]): Steps<object[]> {
  const { run, tables } = scene;
  const given = readEnds(values);
  const before = held(scene, given);
  const free = yield* lockFree(scene, given);
  const holds = new Map<string, { readonly hold: HoldRow; readonly order: number }>();
  for (const { token, found } of free) {
    const { partitionKey, onProbation, lane, queue, tenant, priority } = found.data;
    const { delay = 0, refund = false } = token;
    const isKeyed = partitionKey !== null;
    const isDelayed = delay > 0;
    const leavesProbation = onProbation && !refund && !isKeyed;
    const [home] = run.rows(
      tables.lanes,
      (one) => one.queue === queue && one.tenant === tenant && one.priority === priority,
    );
    yield* run.update(tables.tasks, found, (task) => ({
      state: !isKeyed && isDelayed ? ("scheduled" as const) : ("pending" as const),
      claimOrder: isKeyed ? task.claimOrder : isDelayed ? null : run.nextNumber(),
      runAt: isDelayed ? run.now + secondsToMs(delay) : task.runAt,
      lane: leavesProbation ? (home?.lane ?? task.lane) : task.lane,
      onProbation: onProbation && refund,
      attempt: refund ? task.attempt - 1 : task.attempt,
      ...UNLEASED,
    }));
    if (!isKeyed || !(isDelayed || !refund)) continue;
    const hold = {
      keySpaceId: Math.floor((-lane - 1) / 360),
      tenant,
      partitionKey,
      lane,
      why: "retry" as const,
      until: run.now + secondsToMs(delay),
      taskId: found.data.id,
    };
    // Of several of one key it names the first.
    const [key, order] = [`${lane} ${tenant} ${partitionKey}`, found.data.claimOrder ?? 0];
    if (order < (holds.get(key)?.order ?? Infinity)) holds.set(key, { hold, order });
  }
  for (const { hold } of holds.values()) {
    yield* putHold(run, tables, hold, () => ({ until: hold.until, taskId: hold.taskId }));
  }
  return answerOf(before, new Set(free.map(({ token }) => token.id)));
}

/** What was done; and what is held as before, because somebody had it locked. */
const answerOf = (
  before: readonly { readonly token: Token }[],
  done: ReadonlySet<number>,
): object[] => before.map(({ token }) => ({ id: String(token.id), accepted: done.has(token.id) }));

/** Moves tasks away that will not be tried again. */
const terminal = (stateOf: (given: GivenEnd) => EndRow["state"]) =>
  function* (scene: Scene, values: readonly unknown[]): Steps<object[]> {
    const { run, tables } = scene;
    const given = readEnds(values);
    const before = held(scene, given);
    const free = yield* lockFree(scene, given);
    for (const { token, found } of free) {
      const task = yield* run.remove(tables.tasks, found);
      if (task !== undefined) yield* end(run, tables, task, stateOf(token));
    }
    return answerOf(before, new Set(free.map(({ token }) => token.id)));
  };

function* renew(scene: Scene, values: readonly unknown[]): Steps<object[]> {
  const { run, tables } = scene;
  const given = tokensOf(values);
  const before = held(scene, given);
  const until = run.now + secondsToMs(values[3]);
  const renewed = new Map<number, number>();
  for (const { token, found } of yield* lockFree(scene, given)) {
    const after = yield* run.update(tables.tasks, found, (task) => ({
      leaseUntil: Math.max(task.leaseUntil ?? 0, until),
    }));
    if (after?.leaseUntil != null) renewed.set(token.id, after.leaseUntil);
  }
  return before.map(({ token }) => {
    const instant = renewed.get(token.id);
    const until = instant === undefined ? null : new Date(instant);
    return { place: given.indexOf(token) + 1, until, cancel_reason: null };
  });
}

/** src/tasks/sql/finish.ts and lease.ts */
export const endStatements: SimStatements = {
  tasks_complete: complete,
  tasks_find_completed: reading((scene, values) => {
    const { run, tables } = scene;
    return tokensOf(values).flatMap(({ id, generation, claim_id: claimId }) =>
      run
        .rows(
          tables.ends,
          (one) =>
            one.taskId === id &&
            one.state !== "dead" &&
            one.generation === generation &&
            one.claimId === claimId,
        )
        .map(() => ({ id: String(id) })),
    );
  }),
  *tasks_find_locked({ run, tables }, [ids]) {
    const given = new Set(numbersOf(ids));
    const found = run.select(tables.tasks, (task) => given.has(task.id));
    found.sort((a, b) => a.data.id - b.data.id);
    const free = yield* run.lockAll(found, "update", () => true, "skip");
    const freeIds = new Set(free.map(({ data }) => data.id));
    return found
      .filter(({ data }) => !freeIds.has(data.id))
      .map(({ data }) => ({ id: String(data.id) }));
  },
  tasks_put_back: putBack,
  tasks_end: terminal(({ state }) => state ?? "failed"),
  tasks_bury: terminal(() => "dead"),
  tasks_renew: renew,
  tasks_find_cancelled: reading(() => []),
  tasks_find_standing: reading((scene, values) => {
    const given = tokensOf(values);
    return held(scene, given).map(({ token }) => ({ place: given.indexOf(token) + 1 }));
  }),
};
