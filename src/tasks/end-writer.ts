import type { Queryable } from "../db/database.ts";
import { isLockTimeout } from "../db/sqlstate.ts";
import type { ClaimedTask } from "./claimed-task.ts";
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

/** Lost: the lease is not ours any more, or the task was cancelled. Locked: to be sent again. */
export type Verdict = "accepted" | "lost" | "locked";

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
  #endedClaims: string[] = [];

  /** @param db gives up on a lock after a while */
  constructor(db: Queryable) {
    this.#db = db;
  }

  /** All tasks of the claim have ended: its row in the ledger goes with the next completions. */
  endClaim(claimId: string): void {
    this.#endedClaims.push(claimId);
  }

  /**
   * All statements are written at once, one behind the other.
   *
   * @param wasLocked tasks whose rows were locked when their ends were last sent
   */
  async write(
    tasks: readonly ClaimedTask[],
    wasLocked: { has(task: ClaimedTask): boolean },
  ): Promise<(task: ClaimedTask) => Verdict> {
    const found = await this.#findDoubtful(tasks);
    const completions: ClaimedTask[] = [];
    const suspects = new Set<ClaimedTask>();
    const others: ClaimedTask[] = [];
    for (const task of tasks) {
      if (found.has(task.id)) continue;
      if (task.settlement?.kind !== "complete") others.push(task);
      else if (wasLocked.has(task)) suspects.add(task);
      else if (!task.isCompletedByHandler) completions.push(task);
      task.isDoubtful = true;
    }
    const [completed, suspected, ended] = await Promise.all([
      this.#complete(completions),
      suspects.size === 0 ? undefined : this.#completeFree([...suspects]),
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
    const claims = this.#endedClaims.splice(0);
    if (tasks.length === 0 && claims.length === 0) return undefined;
    try {
      const accepted = await completeTasks(this.#db, tasks, claims);
      return accepted === undefined ? undefined : verdictsOf(accepted, "accepted");
    } catch (error) {
      this.#endedClaims.push(...claims);
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
    return new Map([...verdictsOf(ids, "accepted"), ...verdictsOf(locked, "locked")]);
  }

  /** Retries, dead letters, what is given back. */
  async #endOthers(tasks: readonly ClaimedTask[]): Promise<ReadonlyMap<string, Verdict>> {
    if (tasks.length === 0) return new Map();
    const [putBack, ended, buried] = [
      rowsOf(tasks, "put-back"),
      rowsOf(tasks, "end"),
      rowsOf(tasks, "bury"),
    ];
    const none: Ended = { accepted: new Set(), locked: new Set() };
    const answers = await Promise.all([
      putBack.length === 0 ? none : putBackTasks(this.#db, putBack),
      ended.length === 0 ? none : endTasks(this.#db, ended),
      buried.length === 0 ? none : buryTasks(this.#db, buried),
    ]);
    return new Map(
      answers.flatMap(({ accepted, locked }) => [
        ...verdictsOf(accepted, "accepted"),
        ...verdictsOf(locked, "locked"),
      ]),
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
