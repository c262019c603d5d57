import type { Clock } from "../base/clock.ts";
import type { Queryable } from "../db/database.ts";
import type { Executor } from "./executor.ts";
import type { KeyLaneBook } from "./key-lanes.ts";
import type { ClaimFacts, KeySpace, TakeRows } from "./key-space.ts";
import type { Limiter } from "./limiter.ts";
import { NextHold } from "./next-hold.ts";
import { advanceHolds, nextHoldSeconds } from "./sql/holds.ts";
import { claimHeldHeads } from "./sql/keys.ts";

export interface KeyHeadsOptions {
  readonly clock: Clock;
  readonly limiter: Limiter;
  /** How many of the tenant in the queue there is room for. */
  readonly roomOf: (queue: string, tenant: string) => number;
  readonly executor: Executor;
  /** Those that are open. */
  readonly lanes: KeyLaneBook;
  /** By which they are owned. */
  readonly epoch: () => string;
}

const HOLD_RETRY_MS = 100;

/** The heads of the held keys of one space, which are claimed alone, and when the next is due. */
export class KeyHeads {
  readonly #session: Queryable;
  readonly #space: KeySpace;
  readonly #options: KeyHeadsOptions;
  readonly next = new NextHold();

  constructor(session: Queryable, space: KeySpace, options: KeyHeadsOptions) {
    this.#session = session;
    this.#space = space;
    this.#options = options;
  }

  /** Claims those whose time has come, and lets keys flow that may. */
  async claim(want: number, facts: ClaimFacts, take: TakeRows): Promise<number> {
    const { limiter, roomOf, clock, executor, lanes, epoch } = this.#options;
    const { id, baseId, tenant, queues } = this.#space;
    const { asked } = this.next;
    this.next.answered(clock.now() + HOLD_RETRY_MS, asked);
    if (want <= 0) return 0;
    const flowing = await advanceHolds(this.#session, id, lanes.numbers);
    for (const lane of flowing) lanes.lower(lane);
    await limiter.takeAll(queues, want);
    const exceptQueues = queues.filter(
      (queue) => Math.min(limiter.allowed(queue), roomOf(queue, tenant)) < 1,
    );
    const others = queues.filter((queue) => !exceptQueues.includes(queue));
    const all = Math.min(want, ...others.map((queue) => limiter.allowed(queue)));
    if (others.length === 0) {
      await limiter.spentAll(queues, []);
      return 0;
    }
    const probation = executor.hasProbation ? 0 : 1;
    const heads = await take((claimId) => {
      // Lanes may have been closed while others were waited for.
      const owner = { keySpaceId: id, baseId, epoch: epoch() };
      const request = { ...facts, ...owner, claimId, proofs: limiter.proofs() };
      const wanted = { all, probation, exceptQueues };
      return claimHeldHeads(this.#session, request, lanes.numbers, wanted);
    }, true);
    await limiter.spentAll(queues, heads);
    const seconds = await nextHoldSeconds(this.#session, id, lanes.numbers);
    // One that is due and was not claimed waits for a slot, for probation or for a pause to end.
    this.next.answered(clock.now() + Math.max(seconds * 1000, HOLD_RETRY_MS), asked);
    return heads.length;
  }
}
