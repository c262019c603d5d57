import { BUCKETS } from "../../src/cluster/ring.ts";
import { bucketOfLane } from "../../src/tasks/task.ts";
import { requireEven, Violation } from "./checker.ts";
import type { Call } from "./handlers.ts";
import type { SimServer } from "./server.ts";
import type { Change, Transaction } from "./store.ts";
import type { EndRow, TaskRow } from "./tables.ts";

interface Known {
  readonly key: string | null;
  /** From the first to the newest, without those that a crash took back. */
  readonly claims: string[];
  end: EndRow | undefined;
}

interface KeyState {
  /** In the order of their enqueues. */
  readonly ids: number[];
  ended: number;
  endedAt: number;
}

/** Watches what becomes of tasks, and who runs them meanwhile. */
export class TaskChecker {
  readonly #scene: SimServer;
  readonly #tasks = new Map<number, Known>();
  readonly #keys = new Map<string, KeyState>();
  readonly #calls = new Map<string, Call>();
  /** Claims that a crash took back: their workers cannot know. */
  readonly #lost = new Set<string>();
  #endCount = 0;
  readonly counts = { claims: 0, lostByCrash: 0 };

  constructor(scene: SimServer) {
    this.#scene = scene;
  }

  get enqueued(): number {
    return this.#tasks.size;
  }
  get ended(): number {
    return this.#endCount;
  }

  onCommit(tx: Transaction): void {
    const { tables } = this.#scene;
    for (const change of tx.changes) {
      if (change.table === tables.tasks) this.#taskChanged(change);
      if (change.table === tables.ends) this.#ended(change.after as EndRow);
    }
  }

  onLost(txs: readonly Transaction[]): void {
    const { tables } = this.#scene;
    for (const { changes } of txs.toReversed()) {
      for (const { table, before, after } of changes.toReversed()) {
        if (table === tables.ends) throw new Violation("an end that was durable is gone");
        if (table !== tables.tasks) continue;
        const [was, is] = [before, after] as (TaskRow | undefined)[];
        if (is?.claimId == null || is.claimId === was?.claimId) continue;
        this.#lost.add(is.claimId);
        this.counts.lostByCrash += 1;
        const claims = this.#tasks.get(is.id)?.claims;
        if (claims?.at(-1) === is.claimId) claims.pop();
      }
    }
  }

  #taskChanged({ before, after }: Change): void {
    const [was, is] = [before, after] as (TaskRow | undefined)[];
    if (was === undefined && is !== undefined) this.#enqueued(is);
    if (was?.claimId != null && was.claimId !== is?.claimId) this.#left(was, is);
    if (is?.claimId != null && is.claimId !== was?.claimId) this.#claimed(is);
  }

  #enqueued({ id, partitionKey }: TaskRow): void {
    this.#tasks.set(id, { key: partitionKey, claims: [], end: undefined });
    if (partitionKey === null) return;
    const state = this.#keys.get(partitionKey) ?? { ids: [], ended: 0, endedAt: -Infinity };
    state.ids.push(id);
    this.#keys.set(partitionKey, state);
  }

  #claimed(task: TaskRow): void {
    this.counts.claims += 1;
    const { server, tables } = this.#scene;
    this.#tasks.get(task.id)?.claims.push(task.claimId ?? "");
    if (task.lane >= 0) return;
    const { bucket } = bucketOfLane(task.lane);
    const owners = server.store.committed(tables.owners);
    const mine = owners.find((owner) => owner.workerId === task.leasedBy);
    if (mine?.buckets.includes(bucket) !== true) {
      throw new Violation(`${task.leasedBy} claimed from bucket ${bucket}, which is not its own`);
    }
    for (const other of server.store.committed(tables.tasks)) {
      if (other.lane !== task.lane || other.leasedBy === null) continue;
      if (other.leasedBy === task.leasedBy) continue;
      const who = `${task.leasedBy} and ${other.leasedBy}`;
      throw new Violation(`${who} hold tasks ${task.id} and ${other.id} of bucket ${bucket}`);
    }
  }

  /** A claim is over: whoever runs it must have been told before, unless it could not be. */
  #left(was: TaskRow, is: TaskRow | undefined): void {
    const call = this.#calls.get(`${was.id} ${was.claimId}`);
    if (call === undefined || !this.#isAtWork(call)) return;
    const what = is === undefined ? "ended" : "was free for others";
    throw new Violation(`task ${was.id} ${what} while its handler ran on in ${was.leasedBy}`);
  }

  /** Runs, was not told to stop, and its process could have been. */
  #isAtWork({ isOver, signal, process, claimId }: Call): boolean {
    const isExcused = process.isDead || process.isStill || this.#lost.has(claimId);
    const isLate = process.stoodStillUntil === this.#scene.server.timeline.now;
    return !isOver && !signal.aborted && !isExcused && !isLate;
  }

  #ended(end: EndRow): void {
    const known = this.#tasks.get(end.taskId);
    if (known === undefined) throw new Violation(`task ${end.taskId} ended and never was`);
    if (known.end !== undefined) throw new Violation(`task ${end.taskId} ended twice`);
    known.end = end;
    this.#endCount += 1;
    if (known.claims.at(-1) !== end.claimId) {
      throw new Violation(`task ${end.taskId} was ended by a claim that is not its newest`);
    }
    const call = this.#calls.get(`${end.taskId} ${end.claimId}`);
    if (end.state === "completed" && call === undefined) {
      throw new Violation(`task ${end.taskId} was completed by a claim that never ran`);
    }
    if (known.key !== null) this.#keyedEnded(known.key, end.taskId, call);
  }

  /** The ends of a key come in order, and each begins after the one before it has ended. */
  #keyedEnded(key: string, taskId: number, call: Call | undefined): void {
    const state = this.#keys.get(key);
    if (state === undefined) return;
    if (state.ids[state.ended] !== taskId) {
      throw new Violation(`task ${taskId} of ${key} ended before ${state.ids[state.ended]}`);
    }
    if (call !== undefined && call.startedAt < state.endedAt) {
      throw new Violation(`task ${taskId} of ${key} began before the one before it had ended`);
    }
    state.ended += 1;
    state.endedAt = this.#scene.server.timeline.now;
  }

  /** A handler is called. */
  called(call: Call): void {
    if (call.key !== undefined) {
      for (const other of this.#calls.values()) {
        if (other.key !== call.key || !this.#isAtWork(other)) continue;
        if (this.#lost.has(call.claimId)) continue;
        const tasks = `${other.taskId} and ${call.taskId}`;
        throw new Violation(`tasks ${tasks} of ${call.key} run at once`);
      }
    }
    this.#calls.set(`${call.taskId} ${call.claimId}`, call);
  }

  /** After quiet: nothing is left, and every bucket has one owner among those who live. */
  checkQuiet(live: readonly string[]): void {
    const { server, tables } = this.#scene;
    const left = server.store.committed(tables.tasks);
    if (left.length > 0) {
      const some = left.slice(0, 5).map((task) => JSON.stringify(task));
      const holds = server.store.committed(tables.holds).map((hold) => JSON.stringify(hold));
      const facts = [...some, ...holds.slice(0, 5)].join("\n");
      throw new Violation(`${left.length} tasks are stuck:\n${facts}`);
    }
    if (this.#endCount !== this.#tasks.size) throw new Violation("tasks are lost");
    const owners = server.store.committed(tables.owners);
    const counts = live.map(
      (id) => owners.find((owner) => owner.workerId === id)?.buckets.length ?? 0,
    );
    const all = owners.reduce((sum, { buckets }) => sum + buckets.length, 0);
    if (all !== BUCKETS) throw new Violation(`${all} buckets have an owner`);
    if (counts.reduce((sum, count) => sum + count, 0) !== BUCKETS) {
      throw new Violation("buckets belong to workers that do not live");
    }
    requireEven("buckets", counts);
  }
}
