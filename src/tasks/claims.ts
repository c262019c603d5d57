import type { Clock } from "../base/clock.ts";
import { TimeoutError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { uuidv4 } from "../base/uuid.ts";
import { ClaimedPack } from "./claimed-pack.ts";
import { ClaimedRow } from "./claimed-row.ts";
import {
  Claim,
  ClaimedTask,
  type ClaimFacts,
  type TaskPack,
  type TaskSources,
} from "./claimed-task.ts";
import type { Executor } from "./executor.ts";
import type { LaneBook } from "./lanes.ts";
import type { TaskMetrics } from "./metrics.ts";
import type { TaskSession } from "./session.ts";
import type { Settling } from "./settling.ts";
import { barClaim, type ClaimedRows, undoClaim } from "./sql/claim.ts";
import { openPacksOfClaim } from "./sql/open-packs.ts";
import { type ClaimedPacks } from "./sql/packs.ts";

export interface ClaimsOptions {
  readonly workerId: string;
  readonly leaseSeconds: number;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: TaskMetrics;
  readonly settling: Settling;
  readonly sources: TaskSources;
}

/** A claim is trusted a little shorter than it lasts: clocks drift. */
const TRUST = 0.9;

export interface Taken {
  readonly tasks: readonly ClaimedTask[];
}

export interface TakenRows extends Taken {
  /** How many tasks of each lane. */
  readonly byLane: ReadonlyMap<number, number>;
}

export interface TakenPacks extends Taken {
  readonly packs: readonly TaskPack[];
}

/** What every claim has in common: its tasks go to the executor, or it is undone. */
export class Claims {
  readonly #session: TaskSession;
  readonly #executor: Executor;
  readonly #options: ClaimsOptions;
  #doubtful: string[] = [];

  constructor(session: TaskSession, executor: Executor, options: ClaimsOptions) {
    this.#session = session;
    this.#executor = executor;
    this.#options = options;
  }

  async take(
    claiming: (claimId: string) => Promise<ClaimedRows>,
    isHeldHead: boolean,
  ): Promise<TakenRows> {
    const { sources } = this.#options;
    const tasks = await this.#take(claiming, ({ rows }, claim, facts) => {
      const ofRow = { ...facts, isHeldHead };
      const tasks = rows.map(
        (text) => new ClaimedTask(new ClaimedRow(text), sources, claim, ofRow),
      );
      return tasks.sort((a, b) => a.claimOrder - b.claimOrder);
    });
    const byLane = new Map<number, number>();
    for (const { lane } of tasks) byLane.set(lane, (byLane.get(lane) ?? 0) + 1);
    return { tasks, byLane };
  }

  async takePacks(claiming: (claimId: string) => Promise<ClaimedPacks>): Promise<TakenPacks> {
    const { sources } = this.#options;
    const packs: TaskPack[] = [];
    const tasks = await this.#take(claiming, (claimed, claim, facts) => {
      for (const text of claimed.packs) {
        const pack: TaskPack = new ClaimedPack(text, claim.id);
        const ofPack = { ...facts, pack };
        for (const row of pack.rows()) {
          pack.tasks.push(new ClaimedTask(row, sources, claim, ofPack));
        }
        packs.push(pack);
      }
      // Two packs of which each has a key to wait for in the other would wait for each other.
      packs.sort((a, b) => Number(a.id) - Number(b.id));
      return packs.flatMap((pack) => pack.tasks);
    });
    return { tasks, packs };
  }

  async #take<Claimed extends { readonly until: Date }>(
    claiming: (claimId: string) => Promise<Claimed>,
    read: (claimed: Claimed, claim: Claim, facts: ClaimFacts) => ClaimedTask[],
  ): Promise<ClaimedTask[]> {
    const { clock, leaseSeconds, metrics, settling } = this.#options;
    const claim = new Claim(uuidv4());
    const cuts = this.#executor.keys.recordCuts();
    const claimedAtMs = clock.now();
    const trustedUntilMs = claimedAtMs + leaseSeconds * 1000 * TRUST;
    let tasks: ClaimedTask[];
    try {
      const claimed = await claiming(claim.id);
      if (clock.now() >= trustedUntilMs) {
        throw new TimeoutError("the answer to a claim came when its leases were about to end");
      }
      claim.until = claimed.until;
      tasks = read(claimed, claim, { claimedAtMs, trustedUntilMs, isHeldHead: false });
    } catch (error) {
      this.#doubtful.push(claim.id); // It may have been committed all the same.
      throw error;
    } finally {
      this.#executor.keys.stopRecording(cuts);
    }
    for (const task of tasks) settling.sawNumber(task.claimOrder);
    claim.open = tasks.length;
    metrics.claims.add(tasks.length);
    this.#executor.accept(tasks, cuts);
    return tasks;
  }

  /** Nothing may be claimed while tasks are held that this worker does not know of. */
  async undoDoubtful(): Promise<void> {
    const [claimId] = this.#doubtful;
    if (claimId === undefined) return;
    const isBarred = await barClaim(this.#session, claimId, this.#options.workerId);
    if (!isBarred) await openPacksOfClaim(this.#session, claimId);
    const count = isBarred ? 0 : await undoClaim(this.#session, claimId);
    this.#doubtful.shift();
    if (count > 0) this.#options.logger.info({ count }, "gave back a claim that was not answered");
    await this.undoDoubtful();
  }
}

/** Lanes as they were seen, handlers as they were given. */
export function sourcesOf(lanes: LaneBook, executor: Executor): TaskSources {
  return {
    laneOf: (lane) => lanes.ownerOf(lane),
    handlerOf(queue) {
      const handler = executor.lines.handlerOf(queue);
      if (handler === undefined) throw new Error(`claimed a task of queue ${queue}`);
      return handler;
    },
  };
}
