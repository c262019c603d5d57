import type { Timers } from "../../base/timers.ts";
import type { ClaimTokens } from "../../tasks/claim-tokens.ts";
import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import { abandon } from "../../tasks/outcome.ts";
import type { HeldRow, TenantToken } from "../../tasks/sql/by-token.ts";
import type { LeaseToken } from "../../tasks/task.ts";
import type { Assignment } from "./assignment.ts";
import type { AssignmentBook, Holder } from "./assignment-book.ts";

export interface CustodyOptions {
  readonly book: AssignmentBook;
  readonly timers: Timers;
  /** Of the engine; throws while there is none. */
  readonly tokens: () => ClaimTokens;
  /** Resolves when tasks of the queues can be run here. */
  readonly handle: (queues: readonly string[], tenant: string) => Promise<void>;
  /** The engine forgets it for so long, or until what this returns is called. */
  readonly letGo: (task: ClaimedTask, ms: number) => () => void;
}

/** The same for the same claim. */
export const writeToken = ({ taskId, generation, claimId }: LeaseToken): string =>
  `${taskId}.${generation}.${claimId}`;

/** Who comes back with what it holds, and on which terms it may keep it. */
export interface Returning {
  readonly tenant: string;
  /** Whether it may have tasks of the queue. */
  readonly may: (queue: string) => boolean;
  readonly leaseSeconds: number;
}

/**
 * How tasks come to this desk, and leave it, without being claimed or ended: a worker brings what
 * it got from another server, and callers without a stream take theirs along. The claim stays the
 * same; who holds it is written in the database first.
 */
export class Custody {
  readonly #options: CustodyOptions;
  /** By the id of a task that somebody outside holds: to be called when it has ended. */
  readonly #outside = new Map<string, () => void>();

  constructor(options: CustodyOptions) {
    this.#options = options;
  }

  /** Gives those that the worker may keep; it has them from now on, whoever had them before. */
  async adopt(
    worker: Holder,
    tokens: readonly LeaseToken[],
    { tenant, may, leaseSeconds }: Returning,
  ): Promise<Assignment[]> {
    const { book, handle } = this.#options;
    const adopted: Assignment[] = [];
    const others: TenantToken[] = [];
    for (const token of new Map(tokens.map((one) => [writeToken(one), one])).values()) {
      const one = book.find(token, tenant);
      if (one?.isRunning !== true) others.push({ ...token, tenant });
      else if (may(one.task.queue)) adopted.push(one);
    }
    if (others.length > 0) {
      const found = await this.#options.tokens().adopt(others, leaseSeconds);
      const ours = found.flatMap((row) => (row !== undefined && may(row.queue) ? [row] : []));
      await handle([...new Set(ours.map(({ queue }) => queue))], tenant);
      adopted.push(...ours.flatMap((row) => this.hold(row, leaseSeconds) ?? []));
    }
    for (const one of adopted) {
      const before = book.holderOf(one);
      book.give(one, worker);
      if (before !== worker) before?.onGone(one);
    }
    return adopted;
  }

  /** A task of a queue that is handled here runs at this desk from now on. */
  hold(row: HeldRow, leaseSeconds?: number): Assignment | undefined {
    const task = this.#options.tokens().hold(row, leaseSeconds);
    return task === undefined ? undefined : this.#options.book.of(task);
  }

  /** Somebody outside holds them for so long. Gives those that they got. */
  async handOver(
    assignments: readonly Assignment[],
    given: { readonly holder: string; readonly seconds: number },
  ): Promise<{ readonly task: ClaimedTask; readonly until: Date }[]> {
    const running = assignments.filter((one) => one.isRunning);
    if (running.length === 0) return [];
    let untils: (Date | undefined)[] = [];
    try {
      const tasks = running.map(({ task }) => task);
      untils = await this.#options.tokens().handOver(tasks, given);
    } finally {
      for (const [place, one] of running.entries()) {
        if (untils[place] === undefined) one.end(abandon(), () => {});
        else this.#letGo(one, given.seconds * 1000);
      }
    }
    return running.flatMap(({ task }, place) => {
      const until = untils[place];
      return until === undefined ? [] : [{ task, until }];
    });
  }

  #letGo(assignment: Assignment, ms: number): void {
    const { book, letGo, timers } = this.#options;
    const { task } = assignment;
    book.forget(assignment);
    this.outsideEnded(task.id);
    const end = letGo(task, ms);
    this.#outside.set(task.id, end);
    timers.after(ms, () => {
      if (this.#outside.get(task.id) === end) this.#outside.delete(task.id);
    });
    assignment.drop();
  }

  /** What somebody outside held has ended: it does not count any more. */
  outsideEnded(taskId: string): void {
    this.#outside.get(taskId)?.();
    this.#outside.delete(taskId);
  }
}
