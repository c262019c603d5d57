import type { Queryable } from "../db/database.ts";
import { isLockTimeout, isRefusal } from "../db/sqlstate.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import type { EndedClaims } from "./ended-claims.ts";
import {
  buryTasks,
  completeTasks,
  type Ended,
  endTasks,
  findCompleted,
  findLocked,
  putBackTasks,
  type Settlement,
} from "./sql/finish.ts";

/**
 * Lost: the lease is not ours any more, or the task was cancelled. Locked: to be sent again. An
 * error: the server refuses what is in it, and nothing else.
 */
export type Verdict = "accepted" | "lost" | "locked" | Error;

type VerdictOf = (task: ClaimedTask) => Verdict;
type Tasks = { has(task: ClaimedTask): boolean };

/** By task id; what is not named was lost. Undefined: all were accepted. */
type Verdicts = ReadonlyMap<string, Verdict> | undefined;

/**
 * Sends how tasks ended, and tells what the database said of each. Nobody waits for a row that
 * somebody has locked. Rare ends pass over it in their statement. Completions do not look, because
 * that would cost every one of them a lock of its own: they run into the session's lock timeout,
 * and then what is free is found and sent alone.
 */
export class EndWriter {
  readonly #db: Queryable;
  readonly #endedClaims: EndedClaims;

  /** @param db gives up on a lock after a while */
  constructor(db: Queryable, endedClaims: EndedClaims) {
    this.#db = db;
    this.#endedClaims = endedClaims;
  }

  /**
   * Answers name tasks, not claims. So of a task that ends by two claims at once, because one was
   * lost, the second is sent when the first was answered.
   *
   * @param wasLocked tasks whose rows were locked when their ends were last sent
   */
  async write(tasks: readonly ClaimedTask[], wasLocked: Tasks): Promise<VerdictOf> {
    const [once = tasks, ...more] = roundsOf(tasks);
    if (more.length === 0) return await this.#writeOnce(once, wasLocked);
    const verdicts = new Map<ClaimedTask, Verdict>();
    for (const some of [once, ...more]) {
      const verdictOf = await this.#writeOnce(some, wasLocked);
      for (const task of some) verdicts.set(task, verdictOf(task));
    }
    return (task) => verdicts.get(task) ?? "lost";
  }

  /** All statements are written at once, one behind the other. */
  async #writeOnce(tasks: readonly ClaimedTask[], wasLocked: Tasks): Promise<VerdictOf> {
    const found = await this.#findDoubtful(tasks);
    const completions: ClaimedTask[] = [];
    const suspects = new Set<ClaimedTask>();
    const others: ClaimedTask[] = [];
    for (const task of tasks) {
      if (found.has(task.id)) continue;
      task.isDoubtful = true;
      if (task.settlement?.kind !== "complete") others.push(task);
      else if (task.isCompletedByHandler) continue;
      else if (wasLocked.has(task)) suspects.add(task);
      else completions.push(task);
    }
    const [completed, suspected, ended] = await Promise.all([
      this.#complete(completions),
      suspects.size === 0 ? NOTHING : divided([...suspects], (some) => this.#completeFree(some)),
      this.#endOthers(others),
    ]);
    return (task) => {
      if (found.has(task.id)) return "accepted";
      if (task.settlement?.kind !== "complete") return ended.get(task.id) ?? "lost";
      if (task.isCompletedByHandler) return "lost";
      const verdicts = suspects.has(task) ? suspected : completed;
      return verdicts === undefined ? "accepted" : (verdicts.get(task.id) ?? "lost");
    };
  }

  async #complete(tasks: readonly ClaimedTask[]): Promise<Verdicts> {
    if (tasks.length === 0 && this.#endedClaims.size === 0) return undefined;
    return await divided(tasks, (some) => this.#completeSome(some));
  }

  async #completeSome(tasks: readonly ClaimedTask[]): Promise<Verdicts> {
    const claims = this.#endedClaims.all();
    try {
      const accepted = await completeTasks(this.#db, tasks, claims);
      this.#endedClaims.forget(claims);
      return accepted === undefined ? undefined : verdictsOf(accepted, "accepted");
    } catch (error) {
      if (!isLockTimeout(error)) throw error;
      return await this.#completeFree(tasks);
    }
  }

  /** Meets a lock only when somebody takes it between the two statements. */
  async #completeFree(tasks: readonly ClaimedTask[]): Promise<Verdicts> {
    const locked = await findLocked(this.#db, tasks);
    const free = tasks.filter((task) => !locked.has(task.id));
    const accepted = free.length === 0 ? undefined : await completeTasks(this.#db, free, []);
    const ids = accepted ?? new Set(free.map((task) => task.id));
    return toVerdicts({ accepted: ids, locked });
  }

  /** Retries, dead letters, what is given back. */
  async #endOthers(tasks: readonly ClaimedTask[]): Promise<ReadonlyMap<string, Verdict>> {
    if (tasks.length === 0) return NOTHING;
    const answers = await Promise.all([
      this.#endAs("put-back", tasks, putBackTasks),
      this.#endAs("end", tasks, endTasks),
      this.#endAs("bury", tasks, buryTasks),
    ]);
    return new Map(answers.flatMap((verdicts) => [...(verdicts ?? NOTHING)]));
  }

  async #endAs<Kind extends Other["kind"]>(
    kind: Kind,
    tasks: readonly ClaimedTask[],
    write: (db: Queryable, rows: RowOf<Kind>[]) => Promise<Ended>,
  ): Promise<Verdicts> {
    const ofKind = tasks.filter(({ settlement }) => settlement?.kind === kind);
    if (ofKind.length === 0) return NOTHING;
    return await divided(ofKind, async (some) =>
      toVerdicts(await write(this.#db, rowsOf(some, kind))),
    );
  }

  /** What was not answered may have been accepted, which only history knows. */
  async #findDoubtful(tasks: readonly ClaimedTask[]): Promise<Set<string>> {
    const doubtful = tasks.filter(
      (task) =>
        (task.isDoubtful || task.isCompletedByHandler) && task.settlement?.kind === "complete",
    );
    return doubtful.length === 0 ? new Set() : await findCompleted(this.#db, doubtful);
  }
}

/** In each, no task twice. */
function roundsOf(tasks: readonly ClaimedTask[]): readonly (readonly ClaimedTask[])[] {
  const ids = new Set<string>();
  const later: ClaimedTask[] = [];
  for (const task of tasks) {
    if (ids.has(task.id)) later.push(task);
    else ids.add(task.id);
  }
  if (later.length === 0) return [tasks];
  const put = new Set(later);
  return [tasks.filter((task) => !put.has(task)), ...roundsOf(later)];
}

const NOTHING: ReadonlyMap<string, Verdict> = new Map();

/**
 * A batch that is refused as a whole is halved until each task that is refused stands alone. The
 * batch may also be more than fits into one text.
 */
async function divided(
  tasks: readonly ClaimedTask[],
  send: (some: readonly ClaimedTask[]) => Promise<Verdicts>,
): Promise<Verdicts> {
  try {
    return await send(tasks);
  } catch (error) {
    if (!isRefusal(error) && !(error instanceof RangeError)) throw error;
    const [first] = tasks;
    if (first === undefined || !(error instanceof Error)) throw error;
    if (tasks.length === 1) return new Map([[first.id, error]]);
    const middle = Math.ceil(tasks.length / 2);
    const verdicts = new Map<string, Verdict>();
    for (const half of [tasks.slice(0, middle), tasks.slice(middle)]) {
      const all = new Set(half.map((task) => task.id));
      const answer = (await divided(half, send)) ?? verdictsOf(all, "accepted");
      for (const [id, verdict] of answer) verdicts.set(id, verdict);
    }
    return verdicts;
  }
}

function toVerdicts({ accepted, locked }: Ended): Map<string, Verdict> {
  return new Map([...verdictsOf(accepted, "accepted"), ...verdictsOf(locked, "locked")]);
}

function verdictsOf(ids: ReadonlySet<string>, verdict: Verdict): Map<string, Verdict> {
  return new Map([...ids].map((id) => [id, verdict]));
}

type Other = Exclude<Settlement, { kind: "complete" }>;
type RowOf<Kind extends Other["kind"]> = Extract<Other, { kind: Kind }>["row"];

function rowsOf<Kind extends Other["kind"]>(
  tasks: readonly ClaimedTask[],
  kind: Kind,
): RowOf<Kind>[] {
  return tasks.flatMap(({ settlement }) =>
    settlement?.kind === kind ? [(settlement as Extract<Other, { kind: Kind }>).row] : [],
  ) as RowOf<Kind>[];
}
