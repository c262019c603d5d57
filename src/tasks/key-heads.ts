import type { Clock } from "../base/clock.ts";
import type { Queryable } from "../db/database.ts";
import type { Executor } from "./executor.ts";
import type { KeyLaneBook } from "./key-lanes.ts";
import type { KeyRates } from "./key-rates.ts";
import type { ClaimFacts, KeySpace, TakeRows } from "./key-space.ts";
import type { Limiter } from "./limiter.ts";
import { NextHold } from "./next-hold.ts";
import { FIELD } from "./sql/claim.ts";
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
  /** What keys may start. Undefined: as often as they like. */
  readonly rates: () => KeyRates | undefined;
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
    const rates = this.#options.rates();
    // Nothing was started here yet, so nothing is known of any key.
    if (rates?.fresh() === 0) {
      this.next.answered(clock.now() + rates.nextMs(), asked);
      return 0;
    }
    const ordered = queues.filter((queue) => roomOf(queue, tenant) > 0);
    await limiter.takeAll(ordered, want);
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
      const wanted = { all, probation, exceptQueues, exceptKeys: refusedBy(rates) };
      return claimHeldHeads(this.#session, request, lanes.numbers, wanted);
    }, true);
    for (const head of heads) rates?.spend(head.tenant, head.partitionKey ?? "");
    await limiter.spentAll(queues, heads);
    this.next.answered(clock.now() + (await this.#nextMs(rates)), asked);
    return heads.length;
  }

  async #nextMs(rates: KeyRates | undefined): Promise<number> {
    const refused = refusedBy(rates);
    const { lanes } = this.#options;
    const seconds = await nextHoldSeconds(this.#session, this.#space.id, lanes.numbers, refused);
    const allowedMs = refused.length === 0 ? Infinity : (rates?.nextMs() ?? Infinity);
    // One that is due and was not claimed waits for a slot, for probation or for a pause to end.
    return Math.max(Math.min(seconds * 1000, allowedMs), HOLD_RETRY_MS);
  }
}

/** Tenant and key, with a FIELD between. */
function refusedBy(rates: KeyRates | undefined): string[] {
  const spent = rates?.spent() ?? [];
  return spent.flatMap(({ tenant, key, allowed }) =>
    allowed === 0 ? [`${tenant}${FIELD}${key}`] : [],
  );
}
