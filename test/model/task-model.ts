import type { LeaseToken, TaskState } from "../../src/index.ts";

/*
 * What the task queue should be, without a database: a map of tasks and the rules of their lives.
 * Where the engine may choose, such as which keys it claims from, the model follows and checks that
 * the choice was allowed; everything else it foretells.
 */

export const MAX_ATTEMPTS = 2;
export const MAX_LOSSES = 2;

/** A task as the tables show it. */
export interface ShownTask {
  readonly id: string;
  readonly queue: string;
  readonly key: string | null;
  readonly state: TaskState;
  readonly attempt: number;
  readonly generation: number;
  readonly claimId: string | null;
  readonly workerId: string | null;
  readonly onProbation: boolean;
  readonly losses: number;
  readonly cancelling: boolean;
}

export interface StoredTask extends ShownTask {
  readonly order: number | null;
  readonly expired: boolean;
  /** In which it is, with others. */
  readonly pack: string | null;
}

export interface ModelTask {
  readonly id: string;
  readonly queue: string;
  readonly key: string | null;
  state: TaskState;
  attempt: number;
  generation: number;
  claimId: string | null;
  workerId: string | null;
  onProbation: boolean;
  losses: number;
  cancelling: boolean;
  /** By which it is claimed; null when the next look at the tables is to tell. */
  order: number | null;
  expired: boolean;
  pack: string | null;
  /** Must wait before it is tried again. */
  isDelayed: boolean;
  /** When a person brought it back to its old place, in commands. */
  returnedAt: number;
  /** Grows each time a person brings it back. */
  life: number;
  /** Those of its key that lived before it when it was claimed, with their lives. */
  behind: ReadonlyMap<string, number>;
}

/** What a handler says, and "back": given back as if it had never been claimed. */
export type Act = "complete" | "nack" | "wait" | "fail" | "back";

export interface ClaimView {
  readonly id: string;
  readonly attempt: number;
  readonly generation: number;
  readonly token: LeaseToken;
}

/** Who claims keyed tasks, and what it was told. */
export interface KeyedClaim {
  readonly workerId: string;
  /** The command in which it last heard of changes. */
  readonly heardAt: number;
  /** Of held keys, each of which is claimed alone. */
  readonly isHeads: boolean;
}

export const isLive = ({ state }: { readonly state: TaskState }): boolean =>
  state === "pending" || state === "running" || state === "scheduled";

const keyName = (queue: string, key: string): string => `${queue}/${key}`;

export class TaskModel {
  readonly tasks = new Map<string, ModelTask>();
  /** Every token that was ever given out. */
  readonly tokens: LeaseToken[] = [];
  readonly idempotent = new Map<string, { readonly id: string; readonly what: string }>();
  readonly pausedQueues = new Set<string>();
  readonly #pausedKeys = new Set<string>();
  readonly #parked = new Map<string, string>();
  /** Queue and key, to the worker that the tables name. */
  readonly owners = new Map<string, string>();
  /** Queues whose keys stop behind a task that died. */
  readonly #parking: ReadonlySet<string>;
  /** Counts commands. */
  now = 0;
  #highestOrder = 0;

  constructor(parking: ReadonlySet<string>) {
    this.#parking = parking;
  }

  get all(): ModelTask[] {
    return [...this.tasks.values()];
  }

  get(id: string): ModelTask {
    const task = this.tasks.get(id);
    if (task === undefined) throw new Error(`nobody enqueued task ${id}`);
    return task;
  }

  enqueue(id: string, queue: string, key: string | null): void {
    if (this.tasks.has(id)) throw new Error(`task ${id} exists already`);
    this.tasks.set(id, {
      id,
      queue,
      key,
      state: "pending",
      attempt: 0,
      generation: 0,
      claimId: null,
      workerId: null,
      onProbation: false,
      losses: 0,
      cancelling: false,
      order: null,
      expired: false,
      pack: null,
      isDelayed: false,
      returnedAt: 0,
      life: 0,
      behind: new Map(),
    });
  }

  isCurrent({ taskId, generation, claimId }: LeaseToken): boolean {
    const task = this.tasks.get(taskId);
    if (task === undefined || task.state !== "running") return false;
    return task.claimId === claimId && task.generation === generation;
  }

  /** The unkeyed tasks that a claim must take, in the order of their lane. */
  nextUnkeyed(queue: string, onProbation: boolean, count: number): string[] {
    if (this.pausedQueues.has(queue)) return [];
    return this.all
      .filter((task) => task.queue === queue && task.key === null && task.state === "pending")
      .filter((task) => task.onProbation === onProbation && task.pack === null)
      .sort((a, b) => (a.order ?? 0) - (b.order ?? 0))
      .slice(0, count)
      .map(({ id }) => id);
  }

  /** The tasks of the packs that a claim must take. */
  nextPacked(queue: string, packs: number): string[] {
    if (this.pausedQueues.has(queue)) return [];
    const packed = this.all.filter(
      (task) =>
        task.queue === queue && task.key === null && task.pack !== null && task.state === "pending",
    );
    const ids = [...new Set(packed.map(({ pack }) => Number(pack)))].sort((a, b) => a - b);
    const taken = new Set(ids.slice(0, packs));
    return packed.filter(({ pack }) => taken.has(Number(pack))).map(({ id }) => id);
  }

  /** One claim of keyed tasks, as it was made: were all of them free to be claimed? */
  claimKeyed(views: readonly ClaimView[], claim: KeyedClaim): void {
    const inOrder = views
      .map((view) => ({ view, task: this.get(view.id) }))
      .sort((a, b) => (a.task.order ?? 0) - (b.task.order ?? 0));
    for (const { view, task } of inOrder) {
      this.#checkKeyedClaim(task, claim);
      this.claim(view, claim.workerId);
    }
  }

  #checkKeyedClaim(task: ModelTask, { workerId, heardAt, isHeads }: KeyedClaim): void {
    const { id, queue } = task;
    const key = keyName(queue, task.key ?? "");
    const refuse = (why: string): never => {
      throw new Error(`task ${id} of key ${key} was claimed, ${why}`);
    };
    if (this.pausedQueues.has(queue)) refuse("but its queue is paused");
    if (this.#pausedKeys.has(key)) refuse("but its key is paused");
    if (this.#parked.has(key)) refuse(`but its key is parked behind ${this.#parked.get(key)}`);
    if (task.isDelayed) refuse("but it must wait");
    if (this.owners.get(key) !== workerId) refuse("but not by the owner of its bucket");
    if (task.onProbation && !isHeads) refuse("but it is on probation");
    const before = this.#livingBefore(task);
    for (const other of before) {
      // Of what came back a moment ago to a place below, a worker may not have heard.
      if (other.returnedAt > heardAt) continue;
      if (other.state !== "running") refuse(`but ${other.id} is before it, and ${other.state}`);
      if (other.workerId !== workerId) refuse(`but ${other.id} runs before it elsewhere`);
      if (isHeads) refuse(`but ${other.id} runs before it`);
    }
    const known = before.filter(({ returnedAt }) => returnedAt <= heardAt);
    task.behind = new Map(known.map((other) => [other.id, other.life]));
  }

  #livingBefore(task: ModelTask): ModelTask[] {
    return this.all.filter(
      (other) =>
        isLive(other) &&
        other.queue === task.queue &&
        other.key === task.key &&
        (other.order ?? 0) < (task.order ?? 0),
    );
  }

  claim({ id, attempt, generation, token }: ClaimView, workerId: string): void {
    const task = this.get(id);
    if (task.state !== "pending") throw new Error(`task ${id} was claimed, but is ${task.state}`);
    task.state = "running";
    task.attempt += 1;
    task.generation += 1;
    task.claimId = token.claimId;
    task.workerId = workerId;
    if (attempt !== task.attempt || generation !== task.generation) {
      throw new Error(`task ${id} was claimed as attempt ${attempt}, generation ${generation}`);
    }
    this.tokens.push(token);
  }

  /**
   * Whoever has the token says how its task ended.
   *
   * @param isTold whether its worker knows that it was cancelled
   * @returns whether those of its key behind it may run now
   */
  end(token: LeaseToken, act: Act, isTold: boolean): boolean {
    if (!this.isCurrent(token)) return false;
    const task = this.get(token.taskId);
    if (act === "complete") this.#finish(task, "completed");
    else if (task.cancelling && (act !== "fail" || isTold)) this.#finish(task, "cancelled");
    else if (act === "fail") this.#finish(task, "failed");
    else if (act === "back") this.#putBack(task, true, false);
    else if (task.attempt >= MAX_ATTEMPTS) this.#die(task);
    else this.#putBack(task, false, act === "wait");
    return !isLive(task) && !(task.state === "dead" && this.#parking.has(task.queue));
  }

  #finish(task: ModelTask, state: "completed" | "failed" | "cancelled" | "dead"): void {
    // One that was cancelled may never have started.
    for (const [id, life] of state === "cancelled" ? [] : task.behind) {
      const other = this.get(id);
      if (!isLive(other) || other.life !== life) continue;
      throw new Error(`task ${task.id} is ${state} before ${id}, which is ${other.state}`);
    }
    task.state = state;
    task.onProbation = false;
    task.losses = 0;
    task.cancelling = false;
    task.expired = false;
  }

  #die(task: ModelTask): void {
    this.#finish(task, "dead");
    if (task.key === null || !this.#parking.has(task.queue)) return;
    this.#parked.set(keyName(task.queue, task.key), task.id);
  }

  #putBack(task: ModelTask, refund: boolean, isDelayed: boolean): void {
    task.state = task.key === null && isDelayed ? "scheduled" : "pending";
    if (task.key === null) task.order = null;
    if (refund) task.attempt -= 1;
    else task.onProbation = false;
    task.isDelayed = isDelayed;
    this.#release(task);
  }

  #release(task: ModelTask): void {
    task.claimId = null;
    task.workerId = null;
    task.cancelling = false;
    task.expired = false;
    task.behind = new Map();
  }

  /** What the leader does with tasks whose leases have ended, and with those whose time came. */
  housekeep(): void {
    for (const task of this.all) {
      if (task.state === "scheduled" && !task.isDelayed) {
        task.state = "pending";
        task.order = null;
      }
      if (task.state !== "running" || !task.expired) continue;
      if (task.cancelling) this.#finish(task, "cancelled");
      else if (isGuilty(task)) this.#dieLost(task);
      else {
        if (task.onProbation) task.losses += 1;
        task.onProbation = true;
        task.state = "pending";
        if (task.key === null) task.order = null;
        this.#release(task);
      }
    }
  }

  /** Its worker is gone: whether those before it ended does not matter. */
  #dieLost(task: ModelTask): void {
    task.behind = new Map();
    this.#die(task);
  }

  timePasses(): void {
    for (const task of this.all) task.isDelayed = false;
  }

  /** What a person may do about a task, and what is answered. */
  cancel(id: string): "cancelled" | "cancelling" | undefined {
    const task = this.get(id);
    if (!isLive(task)) return undefined;
    if (task.state === "running") {
      task.cancelling = true;
      return "cancelling";
    }
    this.#finish(task, "cancelled");
    return "cancelled";
  }

  /** False: there is nothing to retry. */
  retry(id: string): boolean {
    const task = this.get(id);
    if (task.state === "running" || task.state === "completed") return false;
    if (task.state === "scheduled") task.order = null;
    if (isLive(task)) task.state = "pending";
    if (isLive(task)) task.isDelayed = false;
    else this.#revive(task, task.state === "dead" && task.key !== null);
    return true;
  }

  redrive(): number {
    const dead = this.all.filter(({ state }) => state === "dead");
    for (const task of dead) this.#revive(task, task.key !== null);
    return dead.length;
  }

  #revive(task: ModelTask, keepsPlace: boolean): void {
    task.state = "pending";
    task.attempt = 0;
    task.life += 1;
    task.isDelayed = false;
    if (keepsPlace) task.returnedAt = this.now;
    else task.order = null;
    this.#release(task);
    const key = keyName(task.queue, task.key ?? "");
    if (this.#parked.get(key) === task.id) this.#parked.delete(key);
  }

  pauseKey(queue: string, key: string, isPaused: boolean): void {
    if (isPaused) this.#pausedKeys.add(keyName(queue, key));
    else this.#pausedKeys.delete(keyName(queue, key));
  }

  resumeAll(): void {
    this.pausedQueues.clear();
    this.#pausedKeys.clear();
  }

  /** Takes in what only the tables know: the orders of tasks that moved, and ended leases. */
  learn(stored: readonly StoredTask[]): void {
    const highest = this.#highestOrder;
    for (const { id, order, expired, pack } of stored) {
      const task = this.tasks.get(id);
      if (task === undefined || !isLive(task)) continue;
      task.expired = expired;
      // Who waited in a pack that was opened stands at the end of the line, unless it has a key.
      const isOpened = task.pack !== null && pack === null && task.state === "pending";
      if (isOpened && task.key === null) task.order = null;
      task.pack = pack;
      if (order === null) continue;
      if (task.order === null && order <= highest) {
        throw new Error(`task ${id} came back at ${order}, not behind all others at ${highest}`);
      }
      if (task.order !== null && task.order !== order) {
        throw new Error(`task ${id} moved from ${task.order} to ${order}`);
      }
      task.order = order;
      this.#highestOrder = Math.max(this.#highestOrder, order);
    }
  }

  show(): ShownTask[] {
    return this.all.map((task) => ({
      id: task.id,
      queue: task.queue,
      key: task.key,
      state: task.state,
      attempt: task.attempt,
      generation: task.generation,
      claimId: task.claimId,
      workerId: task.workerId,
      onProbation: task.onProbation,
      losses: task.losses,
      cancelling: task.cancelling,
    }));
  }
}

/** Alone with its worker, it took it along too often, or has no attempt left. */
function isGuilty({ onProbation, losses, attempt }: ModelTask): boolean {
  return onProbation && (losses + 1 >= MAX_LOSSES || attempt >= MAX_ATTEMPTS);
}
