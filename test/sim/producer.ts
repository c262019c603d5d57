import { bucketOf } from "../../src/cluster/ring.ts";
import { keyLane } from "../../src/tasks/task.ts";
import type { Random } from "../support/random.ts";
import type { Reply, Session } from "./session.ts";
import type { SimPostgres } from "./sim-postgres.ts";
import { TASKS } from "./sim-worker.ts";
import type { SimStatements } from "./statements/statement.ts";
import type { TaskRow } from "./tables.ts";

export const QUEUE = "work";
export const TENANT = "t";
const PRIORITY = 5;
/** The lane of unkeyed tasks, and that of those on probation. */
export const LANES = [
  { lane: 1, queue: QUEUE, tenant: TENANT, priority: PRIORITY },
  { lane: 2, queue: QUEUE, tenant: TENANT, priority: -1 },
];

/** What a program would enqueue by SQL; keys, or null for none. */
export const producerStatements: SimStatements = {
  *sim_enqueue({ run, tables }, [keys, burnt]) {
    const { xid } = run; // The trigger draws it before any number.
    for (let count = 0; count < Number(burnt); count += 1) run.nextNumber();
    for (const key of keys as (string | null)[]) {
      const id = run.nextNumber();
      const task: TaskRow = {
        id,
        claimOrder: id,
        createdAt: run.now,
        runAt: run.now,
        lane: key === null ? 1 : keyLane(0, bucketOf(key)),
        maxAttempts: 1_000,
        priority: PRIORITY,
        losses: 0,
        onProbation: false,
        state: "pending",
        attempt: 0,
        generation: 0,
        claimId: null,
        leasedBy: null,
        leaseUntil: null,
        tenant: TENANT,
        queue: QUEUE,
        partitionKey: key,
        payload: `${xid}`,
      };
      yield* run.insertNew(tables.tasks, task, "tasks_pkey");
    }
    return [];
  },
};

export interface ProducerOptions {
  readonly keys: readonly string[];
  /** Milliseconds between two transactions, on average. */
  readonly everyMs: number;
}

/**
 * A program beside the server that enqueues, one transaction at a time: some take long, some are
 * rolled back, some draw many numbers for nothing, and of some nobody is told.
 */
export class Producer {
  readonly #server: SimPostgres;
  readonly #random: Random;
  readonly #options: ProducerOptions;
  #session: Session | undefined;
  #answered: (reply: Reply) => void = () => {};
  #isOver = false;
  #isBusy = false;
  #id = 0;

  constructor(server: SimPostgres, random: Random, options: ProducerOptions) {
    this.#server = server;
    this.#random = random;
    this.#options = options;
    this.#rest();
  }

  stop(): void {
    this.#isOver = true;
  }

  #rest(): void {
    this.#isBusy = false;
    const restMs = this.#random.next() * 2 * this.#options.everyMs;
    this.#server.timeline.after(restMs, () => {
      if (this.#isOver) return;
      if (this.#server.isUp) this.#begin();
      else this.#rest();
    });
  }

  #begin(): void {
    this.#session ??= this.#server.connect({
      answer: (reply) => this.#answered(reply),
      notify: () => {},
      onEnd: () => {
        this.#session = undefined;
        if (this.#isBusy) this.#rest();
      },
    });
    this.#isBusy = true;
    const { keys } = this.#options;
    const random = this.#random;
    const drawn = Array.from({ length: 1 + random.below(3) }, () =>
      random.chance(0.7) ? (keys[random.below(keys.length)] ?? null) : null,
    );
    const burnt = random.chance(0.1) ? 700 : 0;
    this.#send("BEGIN", () => {
      this.#send("sim_enqueue", () => this.#end(), [drawn, burnt]);
    });
  }

  #end(): void {
    const random = this.#random;
    const session = this.#session;
    const openMs = random.chance(0.7) ? 0 : random.next() * 800;
    this.#server.timeline.after(openMs, () => {
      if (this.#session !== session) return; // The server crashed, and its transaction with it.
      const isTold = random.chance(0.8);
      this.#send(random.chance(0.9) ? "COMMIT" : "ROLLBACK", () => {
        if (isTold) this.#send("notify", () => this.#rest(), [TASKS, ""]);
        else this.#rest();
      });
    });
  }

  #send(what: string, then: () => void, values: readonly unknown[] = []): void {
    this.#id += 1;
    this.#answered = then;
    const name = what === what.toUpperCase() ? undefined : what;
    this.#session?.receive({ id: this.#id, name, text: what, values });
  }
}
