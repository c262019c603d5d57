import { randomUUID } from "node:crypto";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { type Logger, silentLogger } from "../../src/base/log.ts";
import type { Service } from "../../src/base/supervisor.ts";
import type { Database } from "../../src/db/database.ts";
import { LeaseLostError, type Queue } from "../../src/index.ts";
import { isPackLane, rowLane } from "../../src/tasks/claimed-pack.ts";
import type { ClaimedTask } from "../../src/tasks/claimed-task.ts";
import { Claims } from "../../src/tasks/claims.ts";
import { Executor } from "../../src/tasks/executor.ts";
import { Finisher } from "../../src/tasks/finisher.ts";
import type { TakeRows } from "../../src/tasks/key-space.ts";
import { KeySpaces } from "../../src/tasks/key-spaces.ts";
import { Limiter } from "../../src/tasks/limiter.ts";
import { TaskMetrics } from "../../src/tasks/metrics.ts";
import { Renewer } from "../../src/tasks/renewer.ts";
import { ServerWatch } from "../../src/tasks/server-watch.ts";
import type { TaskSession } from "../../src/tasks/session.ts";
import { settleRefused } from "../../src/tasks/settlement.ts";
import { Settling } from "../../src/tasks/settling.ts";
import { claimTasks } from "../../src/tasks/sql/claim.ts";
import { claimPacks } from "../../src/tasks/sql/packs.ts";
import { ManualClock, settle } from "../support/manual-clock.ts";

export const LEASE_SECONDS = 60;

/** What the tables know of the queues. */
export interface Layout {
  readonly queues: readonly Queue[];
  readonly spaceOf: ReadonlyMap<string, number>;
  readonly lanes: readonly {
    readonly lane: number;
    readonly queue: string;
    readonly tenant: string;
    readonly priority: number;
  }[];
}

export interface WorkerParts {
  readonly db: Database;
  /** One to claim and one for ends, as a worker has them. */
  readonly claims: TaskSession;
  readonly ends: TaskSession;
  readonly layout: Layout;
}

/** A handler that waits until it is told how to end. */
interface Gate {
  readonly task: ClaimedTask;
  readonly open: (outcome: unknown) => void;
}

/** One claim of keyed tasks, as it was made. */
export interface KeyedBatch {
  readonly tasks: readonly ClaimedTask[];
  readonly isHeads: boolean;
}

const nothing = (): void => {};
const random = (): number => 0.5;

/**
 * The inside of a worker: its executor, its finisher, its renewer and its claims, without the loops
 * that decide when. Claims are made when a test says so, and handlers end when and as it says. Its
 * clock stands still until it is told that time has passed.
 */
export class ModelWorker {
  readonly id = randomUUID();
  readonly clock = new ManualClock();
  readonly executor: Executor;
  /** The command in which it last heard of changes. */
  heardAt = 0;
  /** Whether it takes packs of keyed tasks whole. */
  isWhole = false;
  /** Whose handlers were called and have not returned. */
  gates: Gate[] = [];
  readonly #parts: WorkerParts;
  readonly #finisher: Finisher;
  readonly #claims: Claims;
  readonly #spaces: KeySpaces;
  readonly #settling = new Settling("tidemill.task_numbers");
  readonly #metrics = new TaskMetrics();
  readonly #batches: KeyedBatch[] = [];
  readonly #stop = new AbortController();
  readonly #ended: Promise<unknown>;
  readonly #complaint: Promise<never>;
  readonly #logger: Logger;

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    let complain: (error: Error) => void = nothing;
    this.#complaint = new Promise((_, reject) => {
      complain = reject;
    });
    this.#complaint.catch(nothing);
    const warn = (fields: object, message: string): void =>
      complain(new Error(`${message}: ${JSON.stringify(fields)}`));
    this.#logger = { ...silentLogger, warn, error: warn };
    // Its clock runs: an end that met a lock is sent again after a while.
    this.#finisher = new Finisher(parts.ends, {
      clock: systemClock,
      logger: this.#logger,
      onSettled: (...settled) => this.executor.settled(...settled),
      onRefused: (task, error) => settleRefused(task, error, random),
      onAnswered: () => this.executor.answered(),
    });
    this.executor = this.#makeExecutor();
    this.#claims = new Claims(parts.claims, this.executor, {
      ...this.#common,
      settling: this.#settling,
      sources: {
        laneOf: (lane) => {
          const known = isPackLane(lane) ? rowLane(lane) : lane;
          return parts.layout.lanes.find((one) => one.lane === known);
        },
        handlerOf: (queue) => this.executor.lines.handlerOf(queue)!,
      },
    });
    this.#spaces = new KeySpaces(parts.claims, this.executor, this.#common, this.clock);
    this.#spaces.use(
      parts.layout.queues.map(({ name }) => ({
        id: parts.layout.spaceOf.get(name)!,
        keyConcurrency: 1,
        isShared: false,
        queues: [name],
      })),
      {
        settling: this.#settling,
        server: new ServerWatch(parts.claims, () => this.#spaces.forget()),
        limiter: new Limiter(parts.claims, { ...this.#common, held: () => 0 }),
        clock: this.clock,
        perKey: () => 50,
        roomOf: () => Infinity,
        packs: {
          isWhole: () => this.isWhole,
          take: async (claim) => {
            const taken = await this.#claims.takePacks(claim);
            this.#batches.push({ tasks: taken.tasks, isHeads: false });
            return taken;
          },
          onOpened: nothing,
        },
      },
    );
    const { signal } = this.#stop;
    this.#ended = Promise.all([this.#finisher.run(signal), this.#finisher.packs.run(signal)]);
  }

  get #common() {
    const { clock } = this;
    const [logger, metrics] = [this.#logger, this.#metrics];
    return { workerId: this.id, leaseSeconds: LEASE_SECONDS, clock, logger, metrics };
  }

  #makeExecutor(): Executor {
    const { clock } = this;
    const run = (task: unknown): Promise<never> =>
      new Promise((open) => {
        this.gates.push({ task: task as ClaimedTask, open: open as Gate["open"] });
      });
    const never = (): never => {
      throw new Error("no handler asks for this");
    };
    const acts = { usesLease: never, extend: never, progress: never, complete: never };
    return new Executor(
      this.#finisher,
      { ...acts, workerId: this.id, logger: silentLogger },
      {
        handlers: this.#parts.layout.queues.map((queue) => queue.handle(run)),
        concurrency: 1_000,
        agingSeconds: 10,
        fairnessTurn: 50,
        findStanding: never,
        isLimited: () => false,
        clock,
        random,
        metrics: this.#metrics,
        onRoom: nothing,
        onDry: nothing,
        onHeadEnded: ({ lane }) => this.#spaces.of(lane)?.headEnded(),
        onKeyedBack: ({ lane }) => this.#spaces.of(lane)?.flowAgain(lane),
        onKeyedLost: ({ lane }) => this.#spaces.of(lane)?.close(lane),
      },
    );
  }

  /** Claimed here and not started: behind another one of their key. */
  get waiting(): ClaimedTask[] {
    return [...this.executor.held].filter(({ state }) => state === "claimed");
  }

  /** Resolves when the database has answered for every end. */
  async quiet(): Promise<void> {
    await settle();
    await Promise.race([this.#complaint, this.#finisher.empty()]);
  }

  /** So many of the queue's lane, and one of those on probation if none is here. */
  async claimUnkeyed(
    queue: string,
    take: number,
    isBesideOthers: boolean,
  ): Promise<readonly ClaimedTask[]> {
    const lanes = this.#parts.layout.lanes
      .filter((one) => one.queue === queue)
      .map(({ lane, priority }) => ({
        lane,
        floor: 0,
        take: priority >= 0 ? take : this.executor.hasProbation ? 0 : 1,
      }));
    const { workerId, leaseSeconds } = this.#common;
    const facts = { workerId, leaseSeconds, proofs: [], isBesideOthers };
    const { tasks } = await this.#claims.take(
      (claimId) => claimTasks(this.#parts.claims, { ...facts, claimId }, lanes),
      false,
    );
    await this.quiet();
    return tasks;
  }

  async claimPacks(lane: number, take: number): Promise<readonly ClaimedTask[]> {
    const { workerId, leaseSeconds } = this.#common;
    const { tasks } = await this.#claims.takePacks((claimId) =>
      claimPacks(this.#parts.claims, { claimId, workerId, leaseSeconds }, [
        { lane, floor: 0, take },
      ]),
    );
    await this.quiet();
    return tasks;
  }

  /** From all key spaces, as a turn of its claimer does. */
  async claimKeyed(want: number, isNews: boolean): Promise<readonly KeyedBatch[]> {
    this.clock.advance(200); // Looks and holds are due again.
    const take: TakeRows = async (claim, isHeads) => {
      const { tasks } = await this.#claims.take(claim, isHeads);
      this.#batches.push({ tasks, isHeads });
      return tasks;
    };
    const news = { isNews, unkeyed: 0, isAwaited: false };
    await this.#spaces.claim(news, { wantKeyed: () => want, isForAll: false }, take);
    await this.quiet();
    return this.#batches.splice(0);
  }

  /** Lets the floors of lanes rise: what was numbered so far will be settled. */
  async openEpoch(): Promise<void> {
    await this.#settling.open(this.#parts.claims);
  }

  /** Buckets moved, or a person did something: it asks what is its own. */
  async hear(now: number): Promise<void> {
    this.#spaces.ownersChanged();
    await this.#spaces.readOwnership();
    this.heardAt = now;
    await this.quiet();
  }

  /** One turn of its renewer, which also asks what was cancelled. */
  async renew(): Promise<void> {
    this.clock.advance((LEASE_SECONDS * 1_000) / 3 + 1);
    const { db } = this.#parts;
    // Of its two loops, one renews and one watches the clock.
    await runTurns(this.clock, 2, (clock) => {
      const renewer = new Renewer(db, this.executor, {
        ...this.#common,
        packs: this.#finisher.packs,
        clock,
        isPooled: true,
      });
      renewer.changed();
      return renewer;
    });
    await this.quiet();
  }

  /** What the renewer's watch does, long before the claimer does anything that relies on leases. */
  async watch(): Promise<void> {
    for (const task of this.executor.held) {
      if (task.trustedUntilMs > this.clock.now()) continue;
      this.executor.lose(task, new LeaseLostError(task.token));
    }
    await this.quiet();
  }

  /** Handlers end, all at once. */
  async end(ends: readonly { readonly gate: Gate; readonly outcome: unknown }[]): Promise<void> {
    const gates = new Set(ends.map(({ gate }) => gate));
    this.gates = this.gates.filter((gate) => !gates.has(gate));
    for (const { gate, outcome } of ends) gate.open(outcome);
    await this.quiet();
  }

  /** Its time to drain is over: it gives back what it holds, whatever handlers say later. */
  async stop(): Promise<void> {
    this.executor.stopStarting();
    this.executor.abortAll();
    await this.quiet();
    await this.crash();
  }

  /** It is gone, and its leases are not. */
  async crash(): Promise<void> {
    this.#stop.abort();
    this.executor.close();
    await this.#ended;
  }
}

/** Lets the loops of a service make one turn each, and ends it when all of them rest. */
export async function runTurns(
  base: Pick<Clock, "now">,
  loops: number,
  make: (clock: Clock) => Service,
): Promise<void> {
  const stop = new AbortController();
  let resting = 0;
  const clock: Clock = {
    now: () => base.now(),
    after() {
      resting += 1;
      if (resting === loops) setImmediate(() => stop.abort());
      return nothing;
    },
  };
  await make(clock).run(stop.signal);
}
