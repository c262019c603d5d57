import type { Clock } from "../base/clock.ts";
import type { Claims } from "./claims.ts";
import { type Found, NOTHING } from "./found.ts";
import type { LaneBook } from "./lanes.ts";
import type { TaskSession } from "./session.ts";
import { claimTasks, type GrantProof, type LaneRequest } from "./sql/claim.ts";

export interface RowClaimerOptions {
  readonly workerId: string;
  readonly leaseSeconds: number;
  readonly clock: Clock;
  /** What claims of limited queues rely on. */
  readonly proofs: () => readonly GrantProof[];
}

/** Who met other workers in its lanes claims with regard to them for so long. */
const OTHERS_MS = 30_000;

/** Takes tasks that wait as rows, without keys. */
export class RowClaimer {
  readonly #session: TaskSession;
  readonly #claims: Claims;
  readonly #lanes: LaneBook;
  readonly #options: RowClaimerOptions;
  #metOthersAtMs = -Infinity;

  constructor(session: TaskSession, claims: Claims, lanes: LaneBook, options: RowClaimerOptions) {
    this.#session = session;
    this.#claims = claims;
    this.#lanes = lanes;
    this.#options = options;
  }

  metOthers(): void {
    this.#metOthersAtMs = this.#options.clock.now();
  }

  async claim(lanes: readonly LaneRequest[]): Promise<Found> {
    if (lanes.length === 0) return NOTHING;
    const { clock, leaseSeconds, workerId } = this.#options;
    const isBesideOthers = clock.now() - this.#metOthersAtMs < OTHERS_MS;
    const proofs = this.#options.proofs();
    let missed = 0;
    const { tasks, byLane } = await this.#claims.take(async (claimId) => {
      const facts = { claimId, workerId, leaseSeconds, proofs, isBesideOthers };
      const claimed = await claimTasks(this.#session, facts, lanes);
      missed = claimed.missed;
      return claimed;
    }, false);
    if (missed > 0) this.metOthers();
    const isDoubtful = tasks.length === 0 && proofs.length > 0;
    for (const task of tasks) this.#lanes.passed(task.lane, task.claimOrder);
    for (const request of isDoubtful ? [] : lanes) {
      const isShort = (byLane.get(request.lane) ?? 0) < request.take;
      // What was missed was not all that is there.
      if (isShort && missed === 0) this.#lanes.markEmpty(request);
    }
    return { byLane, claim: tasks[0]?.claim, opened: 0, isDoubtful };
  }
}
