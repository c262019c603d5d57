import type { Clock } from "../base/clock.ts";
import { TimeoutError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { uuidv4 } from "../base/uuid.ts";
import { Claim, ClaimedTask, type TaskSources } from "./claimed-task.ts";
import type { Executor } from "./executor.ts";
import type { TaskMetrics } from "./metrics.ts";
import type { TaskSession } from "./session.ts";
import type { Settling } from "./settling.ts";
import { barClaim, type ClaimedRows, undoClaim } from "./sql/claim.ts";

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
  ): Promise<{ tasks: readonly ClaimedTask[]; byLane: ReadonlyMap<number, number> }> {
    const { clock, leaseSeconds, metrics, settling, sources } = this.#options;
    const claim = new Claim(uuidv4());
    const cuts = this.#executor.keys.recordCuts();
    const claimedAtMs = clock.now();
    const trustedUntilMs = claimedAtMs + leaseSeconds * 1000 * TRUST;
    let claimed: ClaimedRows;
    try {
      claimed = await claiming(claim.id);
      if (clock.now() >= trustedUntilMs) {
        throw new TimeoutError("the answer to a claim came when its leases were about to end");
      }
    } catch (error) {
      this.#doubtful.push(claim.id); // It may have been committed all the same.
      throw error;
    } finally {
      this.#executor.keys.stopRecording(cuts);
    }
    const facts = { claimedAtMs, trustedUntilMs, isHeldHead };
    const byLane = new Map<number, number>();
    const tasks: ClaimedTask[] = [];
    for (const row of claimed.rows) {
      const task = new ClaimedTask(row, sources, claim, facts);
      byLane.set(task.lane, (byLane.get(task.lane) ?? 0) + 1);
      settling.sawNumber(task.claimOrder);
      tasks.push(task);
    }
    claim.open = tasks.length;
    claim.until = claimed.until;
    metrics.claims.add(tasks.length);
    const inOrder = tasks.sort((a, b) => a.claimOrder - b.claimOrder);
    this.#executor.accept(inOrder, cuts);
    return { tasks, byLane };
  }

  /** Nothing may be claimed while tasks are held that this worker does not know of. */
  async undoDoubtful(): Promise<void> {
    const [claimId] = this.#doubtful;
    if (claimId === undefined) return;
    const isBarred = await barClaim(this.#session, claimId, this.#options.workerId);
    const count = isBarred ? 0 : await undoClaim(this.#session, claimId);
    this.#doubtful.shift();
    if (count > 0) this.#options.logger.info({ count }, "gave back a claim that was not answered");
    await this.undoDoubtful();
  }
}
