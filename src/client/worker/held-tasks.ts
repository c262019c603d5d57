import type { Clock } from "../../base/clock.ts";
import type { LeaseToken } from "../../tasks/task.ts";
import type { Lease } from "../../wire/generated/tidemill/v1/worker.ts";
import type { Link } from "../link.ts";
import { type Due, dueOf, LeaseWatch, nextLookMs } from "./lease-watch.ts";
import type { RemoteTask } from "./remote-task.ts";

export interface HeldTasksOptions {
  readonly clock: Clock;
  /** Whether a server can be asked for anything. */
  readonly canAsk: () => boolean;
  readonly onDue: (task: RemoteTask, due: Due) => void;
}

/** A server that does not answer an extension is asked again after so long. */
const ASK_AGAIN_MS = 1_000;

/** Every task that a server sent and that is not over, and the deadlines of all of them. */
export class HeldTasks {
  readonly #options: HeldTasksOptions;
  readonly #tasks = new Map<string, RemoteTask>();
  readonly #watch: LeaseWatch;

  constructor(options: HeldTasksOptions) {
    this.#options = options;
    this.#watch = new LeaseWatch(options.clock, (nowMs) => this.#look(nowMs));
  }

  get count(): number {
    return this.#tasks.size;
  }

  get all(): IterableIterator<RemoteTask> {
    return this.#tasks.values();
  }

  /** Gives an earlier claim of the same task, which is lost. */
  add(task: RemoteTask, remainingMs: number): RemoteTask | undefined {
    const earlier = this.#tasks.get(task.id);
    this.#tasks.set(task.id, task);
    task.trust(remainingMs, this.#options.clock.now());
    this.#watch.noLaterThan(nextLookMs(task, true));
    return earlier;
  }

  find(token: LeaseToken | undefined): RemoteTask | undefined {
    if (token === undefined) return undefined;
    const task = this.#tasks.get(token.taskId);
    return task?.isClaim(token) === true ? task : undefined;
  }

  /** Only this claim of it. */
  delete(task: RemoteTask): void {
    if (this.#tasks.get(task.id) === task) this.#tasks.delete(task.id);
  }

  started(task: RemoteTask): void {
    if (task.timeoutSeconds <= 0) return;
    task.timeoutAtMs = this.#options.clock.now() + task.timeoutSeconds * 1000;
    this.#watch.noLaterThan(task.timeoutAtMs);
  }

  /** Its server said how long its lease stands. */
  renewed({ token, leaseUntil, remainingMs }: Lease): void {
    const task = this.find(token);
    if (task === undefined) return;
    task.isRenewing = false;
    task.namedUntilMs = Infinity;
    if (leaseUntil !== undefined) task.leaseUntil = leaseUntil;
    task.trust(remainingMs, this.#options.clock.now());
    this.#watch.noLaterThan(nextLookMs(task, true));
  }

  /** An extension was not given, for a passing reason. */
  notRenewed(task: RemoteTask): void {
    task.isRenewing = false;
    task.renewAtMs = this.#options.clock.now() + ASK_AGAIN_MS;
    this.#watch.noLaterThan(task.renewAtMs);
  }

  /** The stream of these tasks is lost: for so long nobody else has them. */
  orphan(link: Link, forMs: number): void {
    const nowMs = this.#options.clock.now();
    for (const task of this.#tasks.values()) {
      if (task.link !== link) continue;
      task.link = undefined;
      task.isRenewing = false;
      task.orphanUntilMs = Math.min(nowMs + forMs, task.namedUntilMs);
      task.renewAtMs = nowMs; // The next server is asked at once, unless it was named there.
      this.#watch.noLaterThan(nextLookMs(task, this.#options.canAsk()));
    }
  }

  /** Those that no server is known to have, to be named in a hello. */
  orphans(most: number): RemoteTask[] {
    const found: RemoteTask[] = [];
    for (const task of this.#tasks.values()) {
      if (found.length >= most) break;
      if (task.link === undefined && task.isHeld) found.push(task);
    }
    return found;
  }

  /** A server that was told of them in a hello has accepted it, and says which of them are lost. */
  adopted(tasks: readonly RemoteTask[], link: Link): void {
    const nowMs = this.#options.clock.now();
    for (const task of tasks) {
      task.link = link;
      task.namedUntilMs = task.orphanUntilMs;
      task.orphanUntilMs = Infinity;
      task.renewAtMs = nowMs + Math.max(0, (task.trustedUntilMs - nowMs) / 2);
    }
    this.#watch.noLaterThan(nowMs);
  }

  close(): void {
    this.#watch.close();
  }

  #look(nowMs: number): number {
    const { canAsk, onDue } = this.#options;
    const isReachable = canAsk();
    let nextMs = Infinity;
    for (const task of this.#tasks.values()) {
      if (!task.isHeld) continue;
      const due = dueOf(task, nowMs, isReachable);
      if (due !== undefined) onDue(task, due);
      if (task.isHeld) nextMs = Math.min(nextMs, nextLookMs(task, isReachable));
    }
    return nextMs;
  }
}
