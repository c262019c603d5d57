import type { Timers } from "../../base/timers.ts";
import type { ClaimTokens } from "../../tasks/claim-tokens.ts";
import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import { abandon } from "../../tasks/outcome.ts";
import type { HeldRow, TenantToken } from "../../tasks/sql/by-token.ts";
import type { LeaseToken } from "../../tasks/task.ts";
import type { Assignment, Holder } from "./assignment.ts";
import type { AssignmentBook } from "./assignment-book.ts";

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
const writeToken = ({ taskId, generation, claimId }: LeaseToken): string =>
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
  /** Of those who came with what they hold: in which order they did. */
  readonly #turns = new WeakMap<Holder, number>();
  #lastTurn = 0;

  constructor(options: CustodyOptions) {
    this.#options = options;
  }

  /** Gives those that are here and that the worker may keep: it has them from now on. */
  keep(worker: Holder, tokens: readonly LeaseToken[], { tenant, may }: Returning): Assignment[] {
    const { book } = this.#options;
    this.#turns.set(worker, ++this.#lastTurn);
    const here = tokens.flatMap((token) => book.find(token, tenant) ?? []);
    const kept = here.filter((one) => one.isRunning && may(one.task.queue));
    this.#give(kept, worker);
    return kept;
  }

  /**
   * Gives those that the worker may have, and says in the database that they are here. Others may
   * have adopted what never left this desk, and two may come with the same at the same time.
   */
  async adopt(
    worker: Holder,
    given: readonly LeaseToken[],
    { tenant, may, leaseSeconds }: Returning,
  ): Promise<Assignment[]> {
    const { book, handle } = this.#options;
    const tokens = this.#options.tokens();
    const here: TenantToken[] = [];
    const others: TenantToken[] = [];
    for (const token of new Map(given.map((one) => [writeToken(one), one])).values()) {
      const isHere = book.find(token, tenant)?.isRunning === true;
      (isHere ? here : others).push({ ...token, tenant });
    }
    if (here.length > 0) await tokens.keep(here, leaseSeconds);
    const found = others.length === 0 ? [] : await tokens.adopt(others, leaseSeconds);
    const ours = found.flatMap((row) => (row !== undefined && may(row.queue) ? [row] : []));
    await handle([...new Set(ours.map(({ queue }) => queue))], tenant);
    const adopted = ours.flatMap((row) => {
      const token = { taskId: row.id, generation: row.generation, claimId: row.claim_id };
      const again = book.find(token, tenant);
      return (again?.isRunning === true ? again : this.hold(row, leaseSeconds)) ?? [];
    });
    this.#give(adopted, worker);
    return adopted;
  }

  /**
   * Who came later keeps it: the database may answer two that wait for the same row in any order,
   * and the stream that came first may be one that its client has left.
   */
  #give(assignments: readonly Assignment[], worker: Holder): void {
    const turnOf = (one: Holder): number => this.#turns.get(one) ?? 0;
    for (const one of assignments) {
      const before = one.holder;
      if (before !== undefined && turnOf(before) > turnOf(worker)) continue;
      one.holder = worker;
      if (before !== worker) before?.onGone(one);
    }
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
    const { id } = assignment.task; // All that is kept of it for so long.
    book.forget(assignment);
    this.outsideEnded(id);
    const end = letGo(assignment.task, ms);
    const cancel = timers.after(ms, () => this.#outside.delete(id));
    this.#outside.set(id, () => {
      cancel();
      end();
    });
    assignment.drop();
  }

  /** What somebody outside held has ended: it does not count any more. */
  outsideEnded(taskId: string): void {
    this.#outside.get(taskId)?.();
    this.#outside.delete(taskId);
  }
}
